#include "src/graph/plan/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "src/backend/host_view.h"
#include "src/backend/ops/copies.h"
#include "src/core/check.h"
#include "src/core/float16.h"

namespace carole {

Executable::Executable(Plan plan)
    : plan_(std::move(plan)), graph_(plan_.graph), backend_(plan_.backend) {
  for (const PlanStep* step : plan_.AllSteps()) steps_.push_back({step});
}

std::unique_ptr<VariableStore> Executable::MakeStore(
    const VariableStore::Allocate& allocate_gradients) const {
  std::vector<VariableSlice> variables;
  for (size_t v = 0; v < graph_.variables().size(); ++v) {
    const Variable& variable = graph_.variables()[v];
    variables.push_back({.name = variable.name,
                         .tf_shape = variable.tf_shape,
                         .shape = variable.shape,
                         .layout = plan_.variable_layouts[v],
                         .plain_layout = variable.plain_layout(),
                         .initializer = variable.initializer,
                         .trainable = variable.trainable,
                         .l2_regularized = variable.l2_regularized,
                         .l2_in_graph = variable.l2_in_graph,
                         .model_variable = variable.model_variable});
  }
  return std::make_unique<VariableStore>(backend_, graph_.compute(), std::move(variables),
                                         plan_.ready_order, allocate_gradients);
}

Tensor Executable::Locate(int representation) const {
  if (representation < 0) return {};
  const Representation& r = plan_.representations[representation];
  if (r.home != Representation::Home::kBlock) {
    const int v = store_->Find(graph_.variables()[r.index].name);
    CAROLE_CHECK(v >= 0, "the store has no variable {}", graph_.variables()[r.index].name);
    const Tensor t =
        r.home == Representation::Home::kWeight ? store_->Weight(v) : store_->Gradient(v);
    CAROLE_CHECK_EQ(t.layout, r.layout, "layout of {}", graph_.variables()[r.index].name);
    return t;
  }
  return {.data = arena_.get() + plan_.blocks[r.index].offset,
          .shape = graph_.shape(r.value),
          .dtype = r.dtype,
          .layout = r.layout};
}

void Executable::Bind(const VariableStore& store) {
  store_ = &store;
  arena_ = backend_.Allocate(plan_.statistics.arena_bytes);
  for (const PlanStep* step : plan_.AllSteps()) {
    KernelMemory memory;
    for (int i : step->inputs) memory.inputs.push_back(Locate(i));
    for (int o : step->outputs) memory.outputs.push_back(Locate(o));
    if (step->workspace >= 0)
      memory.workspace = arena_.get() + plan_.blocks[step->workspace].offset;
    step->kernel->Bind(memory);
  }
  std::vector<std::span<std::byte>> inputs;
  for (ValueId id = 0; id < graph_.num_values(); ++id) {
    const Value& value = graph_.value(id);
    if (value.producer != kNone || value.variable != kNone) continue;
    const Tensor input = Locate(plan_.primary[id]);
    input_indices_[value.name] = inputs.size();
    inputs.emplace_back(input.data, input.bytes());
  }
  inputs_ = backend_.MakeInputBuffers(inputs);
}

void Executable::ReleaseMemory() {
  backend_.DiscardContents(arena_.get(), plan_.statistics.arena_bytes);
}

Tensor Executable::Input(const std::string& name) const {
  Tensor input = Locate(plan_.primary[graph_.input(name)]);
  input.data = inputs_->HostMemory(input_indices_.at(name));
  return input;
}

void Executable::UploadInputs(const RunContext& context) {
  CAROLE_CHECK(store_ != nullptr, "Run() before Bind()");
  inputs_->Upload();
  backend_.BeginRun(context);
}

void Executable::Run(const RunContext& context, const GradientReady& gradient_ready) {
  UploadInputs(context);
  RunKernels(context, gradient_ready);
}

Tensor Executable::OutputMemory(ValueId value) const {
  CAROLE_CHECK(store_ != nullptr && plan_.primary[value] >= 0, "value {} was not computed", value);
  return Locate(plan_.primary[value]);
}

std::vector<double> Executable::Output(ValueId value) const {
  Tensor from = OutputMemory(value);
  const Layout plain = Layout::PlainActivation(from.shape);
  DeviceMemory reordered;
  if (from.layout != plain) {  // plain values, such as losses, need no copy
    const DType dtype = IsNarrow(from.dtype) ? DType::kF32 : from.dtype;
    Tensor to{.data = nullptr, .shape = from.shape, .dtype = dtype, .layout = plain};
    reordered = backend_.Allocate(to.bytes());
    to.data = reordered.get();
    backend_.Reorder(from, to);
    from = to;
  }
  const HostView view(backend_, from.data, from.bytes());
  const auto cast = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  if (from.dtype == DType::kF64) return cast(view.as<double>());
  if (from.dtype == DType::kBF16) return cast(view.as<Bf16>());
  if (from.dtype == DType::kF16) return cast(view.as<Fp16>());
  if (from.dtype == DType::kI32) return cast(view.as<int32_t>());
  return cast(view.as<float>());
}

void Executable::RunKernels(const RunContext& context, const GradientReady& gradient_ready) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = Clock::now();
  const PlanStep* const left_out = copies_taken_ ? &*plan_.weight_casts : nullptr;
  for (TimedStep& timed : steps_) {
    if (timed.step == left_out) continue;
    const PlanStep& step = *timed.step;
    step.kernel->Run(context);
    if (synchronizes_ || !observers_.empty()) backend_.Synchronize();
    if (gradient_ready) {
      for (int ready : step.ready) gradient_ready(ready);
    }
    const Clock::time_point after = Clock::now();
    timed.milliseconds += std::chrono::duration<double, std::milli>(after - before).count();
    ++timed.runs;
    for (const KernelObserver& observer : observers_) {
      observer({.step = static_cast<int>(&timed - steps_.data()),
                .kind = step.kind,
                .phase = step.phase,
                .name = step.name,
                .start = before,
                .end = after});
    }
    before = after;
  }
}

std::vector<WeightCopy> Executable::TakeWeightCopies() {
  CAROLE_CHECK(store_ != nullptr, "copies of weights before Bind()");
  std::vector<WeightCopy> copies;
  if (!plan_.weight_casts) return copies;
  copies_taken_ = true;
  const PlanStep& casts = *plan_.weight_casts;
  for (size_t i = 0; i < casts.inputs.size(); ++i) {
    const Representation& weight = plan_.representations[casts.inputs[i]];
    const VariableSlice& slice =
        store_->variables()[store_->Find(graph_.variables()[weight.index].name)];
    if (!slice.trainable) continue;
    const Tensor copy = Locate(casts.outputs[i]);
    const auto count = static_cast<int64_t>(copy.bytes() / SizeOf(copy.dtype));
    copies.push_back({{slice.offset, slice.offset + count}, copy.dtype, copy.data});
  }
  std::ranges::sort(copies, {}, [](const WeightCopy& copy) { return copy.range.begin; });
  return copies;
}

void Executable::CastWeights(const RunContext& context) {
  if (plan_.weight_casts) plan_.weight_casts->kernel->Run(context);
}

std::vector<OpTime> Executable::Times() const {
  std::map<std::pair<Phase, OpKind>, OpTime> times;
  for (const TimedStep& timed : steps_) {
    const PlanStep& step = *timed.step;
    OpTime& t =
        times.try_emplace({step.phase, step.kind}, OpTime{step.kind, step.phase}).first->second;
    t.milliseconds += timed.milliseconds;
    t.runs += timed.runs;
  }
  std::vector<OpTime> list;
  for (const auto& [key, time] : times) list.push_back(time);
  return list;
}

double Executable::PhaseMilliseconds(Phase phase) const {
  double sum = 0;
  for (const TimedStep& timed : steps_) {
    if (timed.step->phase == phase) sum += timed.milliseconds;
  }
  return sum;
}

void Executable::ResetTimes() {
  for (TimedStep& timed : steps_) timed = {timed.step};
}

std::string Executable::Describe() const {
  std::string text;
  auto describe = [&](int representation) -> std::string {
    if (representation < 0) return "-";
    const Representation& r = plan_.representations[representation];
    return fmt::format("{} {} {}", graph_.shape(r.value).ToString(), r.layout.ToString(),
                       Name(r.dtype));
  };
  for (const TimedStep& timed : steps_) {
    const PlanStep& step = *timed.step;
    text += fmt::format("{:9.3f} ms  {:<24} {:<48}",
                        timed.runs ? timed.milliseconds / static_cast<double>(timed.runs) : 0.0,
                        Name(step.kind), step.name);
    for (int i : step.inputs) text += " " + describe(i);
    text += " ->";
    for (int o : step.outputs) text += " " + describe(o);
    text += "\n";
  }
  return text;
}

}  // namespace carole
