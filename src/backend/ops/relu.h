// ReLU, with and without a ceiling.
#pragma once

#include <limits>

#include "src/backend/ops/op.h"

namespace carole {

// y = min(max(x, 0), ceiling). The gradient passes where 0 < y < ceiling and is 0 elsewhere.
struct ReluAttributes {
  double ceiling = 0;  // 6 for ReLU6; 0 means none
};

// The upper bound of a ReLU's results: the ceiling, or infinity if there is none.
constexpr double ReluUpperBound(double ceiling) {
  return ceiling > 0 ? ceiling : std::numeric_limits<double>::infinity();
}

template <typename T>
struct ReluBackwardInputs {
  T dy = Absent<T>(), y = Absent<T>();
};
// db (C) is the gradient of a bias before the ReLU: the sums of dx over everything but the
// channels.
template <typename T>
struct ReluBackwardOutputs {
  T dx = Absent<T>(), db = Absent<T>();
};

namespace op {

inline constexpr OpSchema kReluBackward{
    .name = "relu_backward",
    .inputs = ReluBackwardInputs<Port>{.dy = Activation("dy"), .y = Activation("y")},
    .outputs = ReluBackwardOutputs<Port>{.dx = Activation("dx"), .db = Optional(Other("db"))}};
inline constexpr OpSchema kRelu{.name = "relu",
                                .inputs = {Activation("x")},
                                .outputs = {Activation("y")},
                                .backward = &kReluBackward};

}  // namespace op

}  // namespace carole
