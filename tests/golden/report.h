// Report: compares the values of one net on one backend with its golden values. It keeps the worst
// error of each kind, and reports a test failure for each value that is out of bounds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace carole::golden {

enum class Kind : uint8_t { kLogits, kEndPoints, kLoss, kGradients, kStatistics, kKinds };

// A recorded value, in double and in fp32. The difference shows how far a good fp32 program
// deviates.
struct Recorded {
  double f64 = 0;
  double f32 = 0;
};

class Report {
 public:
  // `is_fp32`: whether our values or the recorded ones are fp32. Then the bounds are those of
  // Bound, else 1e-6. `roundoff`: the relative rounding error of the narrower type in which
  // activations are stored or multiplied; 0 if there is none.
  Report(std::string net, std::string backend, bool is_fp32, double roundoff = 0)
      : net_(std::move(net)),
        backend_(std::move(backend)),
        is_fp32_(is_fp32),
        roundoff_(roundoff) {}

  // The inputs for computing the allowed difference of a value. In fp32 it is a small multiple of
  // the maximum of three: the deviation of the recorded fp32 value, `absolute`, and
  // NarrowTypeSlack(). In double it is 1e-6 * max(|want|, 1e-6 * scale). The table shows errors
  // relative to `scale` in fp32, and relative to that maximum in double.
  struct Bound {
    double scale;           // size of such quantities: the largest logit, the global norm, ...
    double absolute;        // for fp32 only
    double fp32_deviation;  // the largest deviation of the recorded fp32 values of such quantities
  };
  void Check(Kind kind, const std::string& name, double got, const Recorded& want,
             const Bound& bound);

  void set_parameters(int64_t parameters) { parameters_ = parameters; }
  bool is_fp32() const { return is_fp32_; }

  static std::string Header();
  std::string Row() const;

 private:
  // Returns the difference that the narrower type may cause.
  double NarrowTypeSlack(Kind kind, const Bound& bound) const;

  std::string net_;
  std::string backend_;
  bool is_fp32_;
  double roundoff_;
  int64_t parameters_ = 0;
  int failures_ = 0;
  std::array<double, static_cast<size_t>(Kind::kKinds)> worst_{};
};

}  // namespace carole::golden
