// A probe of a layout. Example: a matrix of 3 x 2 in blocks of two rows, padded to 4 rows.
//
//   coordinates       (0,0) (0,1) (1,0) (1,1) (2,0) (2,1)
//   place in arena      0     2     1     3     4     6
//
// The place is a sum of one term for the row and one for the column: rows give 0, 1, 4 and columns
// give 0, 2. The probe finds these tables with a tensor that is zero except on its axes. Each
// element on an axis has a value of its own, so one reordered tensor shows all terms. A second
// tensor with different values everywhere proves that no element breaks the rule.
#include "src/train/survival/element_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/core/error.h"
#include "src/tensor/buffer.h"

namespace carole::train {
namespace {

// Calls use(coordinates-dependent plain element, place in the arena) for each element.
template <typename Use>
void ForEachElement(const ElementOrder& order, const Use& use) {
  const size_t rank = order.steps.size();
  const size_t last = rank == 0 ? 0 : rank - 1;
  std::vector<int64_t> at(rank, 0);
  const std::vector<int64_t> one{0};
  const std::vector<int64_t>& inner = rank == 0 ? one : order.steps[last];
  const int64_t inner_stride = rank == 0 ? 0 : order.plain_strides[last];
  if (order.size() == 0) return;
  while (true) {
    int64_t plain = 0, place = 0;
    for (size_t d = 0; d < last; ++d) {
      plain += at[d] * order.plain_strides[d];
      place += order.steps[d][static_cast<size_t>(at[d])];
    }
    for (size_t i = 0; i < inner.size(); ++i)
      use(plain + static_cast<int64_t>(i) * inner_stride, place + inner[i]);
    size_t d = last;
    while (d > 0 && ++at[d - 1] == static_cast<int64_t>(order.steps[d - 1].size())) at[--d] = 0;
    if (d == 0) return;
  }
}

// A value for each element, which a float represents exactly.
float ProbeValue(int64_t plain) {
  return static_cast<float>((static_cast<uint64_t>(plain) * 0x9E3779B97F4A7C15U) >> 40U);
}

// The tensor of a probe, in TensorFlow's order and in the variable's own layout.
class Probe {
 public:
  Probe(const Backend& backend, const VariableSlice& variable)
      : backend_(backend),
        plain_(static_cast<size_t>(variable.shape.size()) * sizeof(float)),
        stored_(ByteSize(variable.shape, DType::kF32, variable.layout)),
        from_{.data = plain_.data(), .shape = variable.shape, .layout = variable.plain_layout},
        to_{.data = stored_.data(), .shape = variable.shape, .layout = variable.layout} {}

  std::span<float> plain() const { return Floats(plain_); }
  std::span<float> stored() const { return Floats(stored_); }
  void Reorder() const { backend_.Reorder(from_, to_); }

 private:
  static std::span<float> Floats(const Buffer& buffer) {
    return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)};
  }

  const Backend& backend_;
  const Buffer plain_, stored_;
  const Tensor from_, to_;
};

// Fills the tables from a tensor that is zero except on its axes.
void FindSteps(const Probe& probe, ElementOrder& order) {
  struct OnAxis {
    size_t dimension, index;
  };
  std::vector<OnAxis> marks{{0, 0}};  // marks[v] is the element with value v
  for (size_t d = 0; d < order.steps.size(); ++d) {
    for (size_t i = 1; i < order.steps[d].size(); ++i) {
      probe.plain()[i * static_cast<size_t>(order.plain_strides[d])] =
          static_cast<float>(marks.size());
      marks.push_back({d, i});
    }
  }
  probe.Reorder();
  for (size_t place = 0; place < probe.stored().size(); ++place) {
    const auto mark = static_cast<size_t>(probe.stored()[place]);
    if (mark > 0 && mark < marks.size())
      order.steps[marks[mark].dimension][marks[mark].index] = static_cast<int64_t>(place);
  }
}

bool IsRight(const Probe& probe, const ElementOrder& order) {
  for (size_t i = 0; i < probe.plain().size(); ++i)
    probe.plain()[i] = ProbeValue(static_cast<int64_t>(i));
  probe.Reorder();
  const auto places = static_cast<int64_t>(probe.stored().size());
  bool is_right = true;
  ForEachElement(order, [&](int64_t plain, int64_t place) {
    is_right = is_right && place < places &&
               probe.stored()[static_cast<size_t>(place)] == ProbeValue(plain);
  });
  return is_right;
}

}  // namespace

int64_t ElementOrder::size() const {
  int64_t size = 1;
  for (const auto& table : steps) size *= static_cast<int64_t>(table.size());
  return size;
}

ElementOrder FindElementOrder(const Backend& backend, const VariableSlice& variable) {
  const Shape& shape = variable.shape;
  ElementOrder order;
  const Shape strides = PlainStrides(shape, variable.plain_layout);
  for (int d = 0; d < shape.rank(); ++d) {
    order.plain_strides.push_back(strides[d]);
    order.steps.emplace_back(static_cast<size_t>(shape[d]), 0);
  }
  if (variable.layout.is_plain()) {
    const Shape stored = PlainStrides(shape, variable.layout);
    for (int d = 0; d < shape.rank(); ++d) {
      for (int64_t i = 0; i < shape[d]; ++i) order.steps[d][static_cast<size_t>(i)] = i * stored[d];
    }
    return order;
  }
  if (order.size() == 0) return order;
  const Probe probe(backend, variable);
  FindSteps(probe, order);
  if (!IsRight(probe, order)) {
    throw ConfigError(fmt::format("[survivors] {}: its layout {} is not made of blocks",
                                  variable.name, variable.layout.ToString()));
  }
  return order;
}

std::vector<float> ReadElements(std::span<const float> arena, const ElementOrder& order) {
  std::vector<float> values(static_cast<size_t>(order.size()));
  bool is_inside = true;
  ForEachElement(order, [&](int64_t plain, int64_t place) {
    const auto from = static_cast<size_t>(place), to = static_cast<size_t>(plain);
    if (from < arena.size() && to < values.size()) {
      values[to] = arena[from];
    } else {
      is_inside = false;
    }
  });
  if (!is_inside) throw DataError("[survivors] shared memory: the order of elements is damaged");
  return values;
}

}  // namespace carole::train
