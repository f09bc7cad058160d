#include "src/graph/plan/reorders.h"

#include <algorithm>
#include <utility>

#include "src/backend/ops/copies.h"
#include "src/core/check.h"

namespace carole {
namespace {

using Home = Representation::Home;

bool SupportsCasts(const Backend& backend) {
  const TensorSpec x{.shape = {1}, .layout = Layout::RowMajor()};
  TensorSpec y = x;
  y.dtype = backend.activation_dtype();
  return y.dtype != x.dtype &&
         backend.Supports({.kind = op::kCasts, .inputs = {x}, .outputs = {y}});
}

}  // namespace

Reorders::Reorders(PlanBuilder& builder)
    : builder_(builder),
      graph_(builder.plan().graph),
      backend_(builder.plan().backend),
      batches_casts_(SupportsCasts(backend_)) {}

int Reorders::Obtain(ValueId value, const Layout& layout, DType dtype, const Node& reader) {
  const int primary = builder_.PrimaryFor(reader, value);
  if (builder_.at(primary).home == Home::kGradient) AddGradientCasts();
  if (builder_.at(primary).layout.is_any()) {
    // The first reader of a weight chooses its layout. A plain layout is taken even if the reader
    // wants another type, so that its copy needs no reorder, only a cast. A blocked layout belongs
    // to one type; it is taken if that is the weight's own type.
    const Representation& weight = builder_.at(primary);
    const bool choose = layout.is_plain() || (weight.dtype == dtype && !layout.is_any());
    builder_.SetWeightLayout(primary,
                             choose ? layout : graph_.variables()[weight.index].plain_layout());
  }
  const Representation& r = builder_.at(primary);
  if (r.dtype == dtype && (layout.is_any() || r.layout == layout)) return primary;
  for (int other : copies_[value]) {
    const Representation& copy = builder_.at(other);
    if (copy.layout == layout && copy.dtype == dtype) return other;
  }
  const int copy = builder_.AddBlock(value, layout, dtype);
  copies_[value].push_back(copy);
  AddReorder(primary, copy, reader);
  return copy;
}

void Reorders::AddReorder(int from, int to, const Node& node) {
  CAROLE_CHECK(builder_.at(from).dtype != DType::kI32,
               "{} {}: an integer tensor cannot be reordered; only the kind of kernel that made it "
               "can read it",
               Name(node.kind), node.name);
  builder_.CountReorder(builder_.at(from).home != Home::kBlock ||
                        builder_.at(to).home != Home::kBlock);
  if (batches_casts_ && DeferCast(from, to)) return;
  const Plan& plan = builder_.plan();
  builder_.AddStep(
      backend_.MakeKernel(
          {.kind = op::kReorder, .inputs = {plan.SpecOf(from)}, .outputs = {plan.SpecOf(to)}}),
      op::kReorder, node.name, {from}, {to});
}

// If this is a cast of a weight, or a cast to a gradient, without change of layout: keeps it for a
// batch of casts and returns true.
bool Reorders::DeferCast(int from, int to) {
  const Representation &x = builder_.at(from), &y = builder_.at(to);
  const bool from_weight = x.home == Home::kWeight, to_gradient = y.home == Home::kGradient;
  if (x.dtype == y.dtype || x.layout != y.layout || from_weight == to_gradient) return false;
  Casts& casts = from_weight ? weight_casts_ : gradient_casts_;
  casts.from.push_back(from);
  casts.to.push_back(to);
  casts.bytes += ByteSize(graph_.shape(y.value), y.dtype, y.layout);
  // Gradients are sent to other ranks during backward, so they must not wait long for their cast.
  constexpr size_t kManyBytes = size_t{8} << 20;
  if (to_gradient && casts.bytes >= kManyBytes) AddGradientCasts();
  return true;
}

std::unique_ptr<Kernel> Reorders::MakeCasts(const Casts& casts) const {
  OpSpec spec{.kind = op::kCasts};
  for (int r : casts.from) spec.inputs.push_back(builder_.plan().SpecOf(r));
  for (int r : casts.to) spec.outputs.push_back(builder_.plan().SpecOf(r));
  return backend_.MakeKernel(spec);
}

void Reorders::AddGradientCasts() {
  if (gradient_casts_.from.empty()) return;
  Casts casts = std::exchange(gradient_casts_, {});
  auto kernel = MakeCasts(casts);
  builder_.AddStep(std::move(kernel), op::kCasts, "gradients", std::move(casts.from),
                   std::move(casts.to));
}

void Reorders::AddWeightCasts() {
  if (weight_casts_.from.empty()) return;
  Casts casts = std::exchange(weight_casts_, {});
  auto kernel = MakeCasts(casts);
  const bool is_training = std::ranges::any_of(
      graph_.variables(), [](const Variable& v) { return v.gradient != kNone; });
  // In training, the copies must survive until the next run if an optimizer maintains them.
  if (is_training) std::ranges::for_each(casts.to, [&](int copy) { builder_.Pin(copy); });
  builder_.SetPhase(Phase::kForward);
  builder_.SetWeightCasts(builder_.MakeStep(std::move(kernel), op::kCasts, "weights",
                                            std::move(casts.from), std::move(casts.to)));
}

}  // namespace carole
