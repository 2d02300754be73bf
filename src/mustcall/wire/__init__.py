"""The wires: pure codecs between bytes and canonical values, one package per provider protocol."""
