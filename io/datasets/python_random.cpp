#include "io/datasets/python_random.h"

namespace carole::io {

PythonRandom::PythonRandom(uint32_t seed) {
  state_[0] = 19650218;
  for (uint32_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
  const auto mix = [&](int i) { return state_[i - 1] ^ state_[i - 1] >> 30; };
  int i = 1;
  const auto step = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (int k = 0; k < kWords; ++k, step()) state_[i] = (state_[i] ^ mix(i) * 1664525u) + seed;
  for (int k = 1; k < kWords; ++k, step())
    state_[i] = (state_[i] ^ mix(i) * 1566083941u) - static_cast<uint32_t>(i);
  state_[0] = 0x80000000u;
}

void PythonRandom::Refill() {
  for (int i = 0; i < kWords; ++i) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
    state_[i] = state_[(i + 397) % kWords] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfu : 0u);
  }
  next_ = 0;
}

uint32_t PythonRandom::Next() {
  if (next_ == kWords) Refill();
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

double PythonRandom::Random() {
  const uint32_t high = Next() >> 5;
  const uint32_t low = Next() >> 6;
  return (high * 67108864.0 + low) * 0x1p-53;
}

}  // namespace carole::io
