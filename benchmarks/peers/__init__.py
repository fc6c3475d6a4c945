"""One module per queue. Each measure is a function that a fresh process calls (``benchmarks.child``)."""
