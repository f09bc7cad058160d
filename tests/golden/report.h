// How far one net on one backend is from its golden values: the worst error of each kind, and a
// test failure for each value that is out of bounds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace carole::golden {

enum class Kind : uint8_t { kLogits, kEndPoints, kLoss, kGradients, kStatistics, kKinds };

// A recorded value. `f32` shows how far a good single-precision program strays.
struct Recorded {
  double f64 = 0;
  double f32 = 0;
};

class Report {
 public:
  // `single`: fp32 is compared with, or by; bounds are those of slack below. Else the bound is
  // 1e-6. `roundoff`: of one rounding to a narrower type that activations are stored or multiplied
  // in, relative; 0: to none.
  Report(std::string net, std::string backend, bool single, double roundoff = 0)
      : net_(std::move(net)), backend_(std::move(backend)), single_(single), roundoff_(roundoff) {}

  // What a value may differ by in fp32: a few times the largest of how far the recorded fp32 value
  // strays, `absolute`, and Narrow(). In double: 1e-6 of max(|want|, 1e-6 * scale). The error that
  // the table shows is relative to `scale` in fp32, to that maximum in double.
  struct Bound {
    double scale;     // of the quantity: the largest logit, the global norm of the gradient …
    double absolute;  // fp32 only
    double strays;    // of the recorded fp32 values of such quantities the farthest
  };
  void Check(Kind kind, const std::string& name, double got, const Recorded& want,
             const Bound& bound);

  void set_parameters(int64_t parameters) { parameters_ = parameters; }
  bool single() const { return single_; }

  static std::string Header();
  std::string Row() const;

 private:
  // What the narrower type costs.
  double Narrow(Kind kind, const Bound& bound) const;

  std::string net_;
  std::string backend_;
  bool single_;
  double roundoff_;
  int64_t parameters_ = 0;
  int failures_ = 0;
  std::array<double, static_cast<size_t>(Kind::kKinds)> worst_{};
};

}  // namespace carole::golden
