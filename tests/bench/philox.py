"""An independent implementation of carole's random numbers, order of images and dropout masks.

It follows src/core/rng.h, io/records/sharding.h and src/backend/dropout_mask.h. So a training in another framework can
see the same images, and keep the same activations, as carole does.
"""

import numpy as np

SHUFFLE, DROPOUT = 2, 4  # purposes
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def split_mix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def stream_words(seed, purpose, a, b, first_block, blocks):
    """Returns the words of these blocks of the stream (a, b), in order, by Philox4x32-10."""
    key = split_mix((split_mix(seed ^ (purpose << 56)) + a) & MASK64)
    k0, k1 = key & MASK32, key >> 32
    block = np.arange(first_block, first_block + blocks, dtype=np.uint64)
    low, shift = np.uint64(MASK32), np.uint64(32)
    c = [block & low, block >> shift, np.full_like(block, b & MASK32), np.full_like(block, b >> 32)]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return np.stack(c, axis=1).astype(np.uint32).reshape(-1)


def epoch_order(seed, epoch, count):
    """Returns the indexes of the images of an epoch, in the order in which they are visited."""
    words = iter(stream_words(seed, SHUFFLE, epoch, 0, 0, count // 2 + 64).tolist())

    def below(bound):  # Lemire 2019
        while True:
            product = ((next(words) << 32) | next(words)) * bound
            if product & MASK64 >= (1 << 64) % bound:
                return product >> 64

    order = list(range(count))
    for i in range(count, 1, -1):  # Fisher-Yates
        j = below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return np.array(order)


def dropout_mask(seed, step, layer, first_sample, shape, keep):
    """Returns 1/keep for activations that are kept and 0 for others. shape: (rows, features); features % 4 must be 0."""
    rows, features = shape
    words = stream_words(seed, DROPOUT, step, layer, first_sample * features // 4, rows * features // 4)
    kept = (words >> np.uint32(8)) < np.ceil(keep * 2**24)
    return kept.reshape(shape).astype(np.float32) / np.float32(keep)
