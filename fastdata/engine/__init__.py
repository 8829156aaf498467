"""The engine: what turns jobs (which samples, which draws) into batches, in threads, without copies."""
