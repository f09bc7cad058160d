"""Tests of the soak's own arithmetic: a leak is found, and noise is not one."""

import random
import unittest

import soak


def samples_of(memory_of):
    return [(float(t), {"memory": memory_of(t), "files": 20, "threads": 8 + (t % 7 == 0)}) for t in range(600)]


class Growth(unittest.TestCase):
    def test_line_is_fitted(self):
        slope, error = soak.fit_line([0, 1, 2, 3], [5, 7, 9, 11])
        self.assertAlmostEqual(slope, 2)
        self.assertAlmostEqual(error, 0)

    def test_a_leak_is_found(self):
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + 5e4 * t), "memory")
        self.assertGreater(growth, allowed)

    def test_noise_is_no_leak(self):
        rng = random.Random(1)
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + rng.gauss(0, 4e6)), "memory")
        self.assertLess(abs(growth), allowed)

    def test_what_comes_and_goes_is_no_leak(self):
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8), "threads")
        self.assertLess(abs(growth), allowed)


if __name__ == "__main__":
    unittest.main()
