"""Runs that outlive their process: journalled, held by one owner at a time, gone on with after a crash."""
