"""What is fuzzed, and with what: for benchmarks/fuzz.py and the tests."""
