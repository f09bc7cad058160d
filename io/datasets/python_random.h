// Python 2's random.Random with an integer seed (MT19937, Matsumoto & Nishimura 1998, seeded with
// init_by_array). TF-Slim's tools shuffle with it, and the same seed must give the same shards
// here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace carole::io {

class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  double Random();  // uniform in [0, 1) with 53 bits

  // Shuffles as random.shuffle of Python 2. Python 3 draws its indices in another way.
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i-- > 1;)
      std::swap(values[i], values[static_cast<std::size_t>(Random() * static_cast<double>(i + 1))]);
  }

 private:
  static constexpr int kWords = 624;

  uint32_t Next();
  void Refill();

  std::array<uint32_t, kWords> state_;
  int next_ = kWords;
};

}  // namespace carole::io
