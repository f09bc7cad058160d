"""Runs the tests of one unittest.TestCase in parallel. This pays off for tests that mostly wait."""

import concurrent.futures
import io
import sys
import time
import unittest


def main(case, threads, slow=()):
    """Replaces unittest.main(); with options on the command line it calls unittest.main(). Each test gets its own
    instance, class fixtures run once, and the tests named in `slow` start first."""
    if len(sys.argv) > 1:
        unittest.main()
    names = sorted(unittest.defaultTestLoader.getTestCaseNames(case), key=lambda name: name not in slow)
    case.setUpClass()
    try:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            good = all(list(pool.map(lambda name: _run(case(name)), names)))
    finally:
        case.tearDownClass()
    print(f"{len(names)} tests: {'OK' if good else 'FAILED'}")
    sys.exit(0 if good else 1)


def _run(test):
    start = time.monotonic()
    stream = io.StringIO()
    # TextTestRunner cannot be used: it changes the warning filters of the whole process, which threads share.
    result = unittest.TextTestResult(unittest.runner._WritelnDecorator(stream), True, 0)
    test(result)
    result.printErrors()
    word = "ok" if result.wasSuccessful() else "FAILED"
    word = f"skipped: {result.skipped[0][1]}" if result.skipped else word
    print(f"{test.id()}: {word}, {time.monotonic() - start:.1f} s\n{stream.getvalue()}", end="", flush=True)
    return result.wasSuccessful()
