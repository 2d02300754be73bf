"""The databases of the ledger: what a store is, its tables and statements, SQLite and PostgreSQL."""
