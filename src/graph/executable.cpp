#include "src/graph/executable.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "src/core/check.h"

namespace carole {

// A value in one layout, and where it lies: in a block of the arena, or as a variable's weight or
// gradient.
struct Executable::Representation {
  enum class Home : uint8_t { kBlock, kWeight, kGradient } home = Home::kBlock;
  ValueId value = kNone;
  Layout layout;
  int index = -1;  // block, or index into graph.variables()
};

struct Executable::Step {
  std::unique_ptr<Kernel> kernel;
  OpKind kind;
  Phase phase;
  std::string name;
  std::vector<int> inputs;  // representations, -1 where absent
  std::vector<int> outputs;
  int workspace = -1;      // block
  std::vector<int> ready;  // gradients that are final after this step
  double milliseconds = 0;
  int64_t runs = 0;
};

// Makes steps, representations and blocks out of a graph.
class Executable::Compiler {
 public:
  Compiler(Executable& e, const VariableStore* share) : e_(e), graph_(e.graph_) {
    e_.primary_.assign(graph_.num_values(), -1);
    gradient_of_.assign(graph_.num_values(), -1);
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      const int place = share == nullptr ? -1 : share->Find(variable.name);
      e_.variable_layouts_.push_back(place < 0 ? Layout::Any() : share->places()[place].layout);
      if (variable.gradient != kNone) gradient_of_[variable.gradient] = static_cast<int>(v);
    }
  }

  void Run() {
    AddLeaves();
    const std::vector<bool> live = LiveNodes();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (!live[i]) continue;
      const Node& node = graph_.nodes()[i];
      node.kind == OpKind::kReshape ? AddReshape(node) : AddKernel(node);
    }
    CheckGradients();
    PlaceBlocks();
  }

 private:
  using Home = Representation::Home;

  // Nodes that lead to an output or to a gradient.
  std::vector<bool> LiveNodes() const {
    std::vector<bool> needed(graph_.num_values(), false);
    for (ValueId id : graph_.outputs()) needed[id] = true;
    for (const Variable& v : graph_.variables()) {
      if (v.gradient != kNone) needed[v.gradient] = true;
    }
    std::vector<bool> live(graph_.nodes().size(), false);
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      live[i] = !node.dead && std::any_of(node.outputs.begin(), node.outputs.end(),
                                          [&](ValueId id) { return id != kNone && needed[id]; });
      if (!live[i]) continue;
      for (ValueId id : node.inputs) {
        if (id != kNone) needed[id] = true;
      }
    }
    return live;
  }

  void AddLeaves() {
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer != kNone) continue;
      if (value.variable != kNone) {
        e_.primary_[id] =
            Add({Home::kWeight, id, e_.variable_layouts_[value.variable], value.variable});
      } else {
        e_.primary_[id] = AddBlock(id, Layout::PlainActivation(value.shape));
        pinned_.push_back(e_.representations_[e_.primary_[id]].index);
      }
    }
  }

  int Add(Representation representation) {
    e_.representations_.push_back(std::move(representation));
    return static_cast<int>(e_.representations_.size() - 1);
  }

  int AddBlock(ValueId value, const Layout& layout) {
    const Value& v = graph_.value(value);
    e_.blocks_.push_back({.bytes = ByteSize(v.shape, v.dtype, layout)});
    return Add({Home::kBlock, value, layout, static_cast<int>(e_.blocks_.size() - 1)});
  }

  TensorSpec SpecOf(int representation) const {
    const Representation& r = e_.representations_[representation];
    return {
        .shape = graph_.shape(r.value), .dtype = graph_.value(r.value).dtype, .layout = r.layout};
  }

  // The value in this layout; reordered at most once for each layout.
  int Obtain(ValueId value, const Layout& layout, const Node& reader) {
    const int primary = e_.primary_[value];
    CAROLE_CHECK(primary >= 0, "{} {} reads a value that nothing has made", Name(reader.kind),
                 reader.name);
    Representation& r = e_.representations_[primary];
    if (r.layout.is_any()) {  // a weight that nobody has placed yet: its first reader chooses
      r.layout = layout.is_any() ? graph_.variables()[r.index].plain_layout() : layout;
      e_.variable_layouts_[r.index] = r.layout;
    }
    if (layout.is_any() || r.layout == layout) return primary;
    for (int other : copies_[value]) {
      if (e_.representations_[other].layout == layout) return other;
    }
    const int copy = AddBlock(value, layout);
    copies_[value].push_back(copy);
    AddReorder(primary, copy, reader);
    return copy;
  }

  void AddReorder(int from, int to, const Node& node) {
    const bool weight = e_.representations_[from].home != Home::kBlock ||
                        e_.representations_[to].home != Home::kBlock;
    ++(weight ? e_.statistics_.weight_reorders : e_.statistics_.activation_reorders);
    const OpSpec spec{.kind = OpKind::kReorder,
                      .attributes = {},
                      .inputs = {SpecOf(from)},
                      .outputs = {SpecOf(to)}};
    AddStep(e_.backend_.MakeKernel(spec), OpKind::kReorder, node, {from}, {to});
  }

  void AddStep(std::unique_ptr<Kernel> kernel, OpKind kind, const Node& node,
               std::vector<int> inputs, std::vector<int> outputs) {
    Step step{.kernel = std::move(kernel),
              .kind = kind,
              .phase = node.phase,
              .name = node.name,
              .inputs = std::move(inputs),
              .outputs = std::move(outputs),
              .ready = {}};
    if (step.kernel->workspace_bytes() > 0) {
      const int at = static_cast<int>(e_.steps_.size());
      e_.blocks_.push_back(
          {.bytes = step.kernel->workspace_bytes(), .first_step = at, .last_step = at});
      step.workspace = static_cast<int>(e_.blocks_.size() - 1);
    }
    for (int output : step.outputs) {
      if (output < 0 || e_.representations_[output].home != Home::kGradient) continue;
      step.ready.push_back(static_cast<int>(e_.ready_order_.size()));
      e_.ready_order_.push_back(e_.representations_[output].index);
    }
    e_.steps_.push_back(std::move(step));
  }

  // A gradient that is another variable's too, or a reshaped value, would never reach its arena.
  void CheckGradients() const {
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      const bool made = std::find(e_.ready_order_.begin(), e_.ready_order_.end(),
                                  static_cast<int>(v)) != e_.ready_order_.end();
      CAROLE_CHECK(variable.gradient == kNone || made,
                   "no kernel makes the gradient of {} alone; read it by an operation of its own",
                   variable.name);
    }
  }

  // Same memory, other shape: plain layouts make it free.
  void AddReshape(const Node& node) {
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const int input = Obtain(from, Layout::PlainActivation(graph_.shape(from)), node);
    Representation alias = e_.representations_[input];
    alias.value = to;
    alias.layout = Layout::PlainActivation(graph_.shape(to));
    e_.primary_[to] = Add(alias);
  }

  void AddKernel(const Node& node) {
    OpSpec spec = graph_.Spec(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (spec.inputs[i].present)
        spec.inputs[i].layout = e_.representations_[e_.primary_[node.inputs[i]]].layout;
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int variable = spec.outputs[o].present ? gradient_of_[node.outputs[o]] : -1;
      if (variable >= 0) spec.outputs[o].layout = e_.variable_layouts_[variable];
    }
    auto kernel = e_.backend_.MakeKernel(spec);
    std::vector<int> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(
          spec.inputs[i].present ? Obtain(node.inputs[i], kernel->input_layouts()[i], node) : -1);
    }
    std::vector<std::pair<int, int>> gradients_to_move;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == kNone) {
        outputs.push_back(-1);
        continue;
      }
      const Layout& layout = kernel->output_layouts()[o];
      const int variable = gradient_of_[id];
      if (variable < 0) {
        outputs.push_back(AddBlock(id, layout));
      } else {
        const int home = Add({Home::kGradient, id, e_.variable_layouts_[variable], variable});
        const bool direct = layout == e_.variable_layouts_[variable];
        outputs.push_back(direct ? home : AddBlock(id, layout));
        if (!direct) gradients_to_move.emplace_back(outputs.back(), home);
      }
      e_.primary_[id] = outputs.back();
    }
    AddStep(std::move(kernel), node.kind, node, std::move(inputs), std::move(outputs));
    for (auto [from, to] : gradients_to_move) AddReorder(from, to, node);
  }

  int BlockOf(int representation) const {
    if (representation < 0) return -1;
    const Representation& r = e_.representations_[representation];
    return r.home == Home::kBlock ? r.index : -1;
  }

  void PlaceBlocks() {
    const int num_steps = static_cast<int>(e_.steps_.size());
    std::vector<bool> born(e_.blocks_.size(), false);
    for (int s = 0; s < num_steps; ++s) {
      for (int o : e_.steps_[s].outputs) {
        if (const int b = BlockOf(o); b >= 0 && !born[b]) {
          born[b] = true;
          e_.blocks_[b].first_step = s;
          e_.blocks_[b].last_step = s;
        }
      }
      for (int i : e_.steps_[s].inputs) {
        if (const int b = BlockOf(i); b >= 0) e_.blocks_[b].last_step = s;
      }
    }
    for (ValueId id : graph_.outputs()) {
      if (const int b = BlockOf(e_.primary_[id]); b >= 0) pinned_.push_back(b);
    }
    for (int b : pinned_) {
      if (!born[b]) e_.blocks_[b].first_step = 0;
      e_.blocks_[b].last_step = std::max(num_steps - 1, 0);
    }
    ShareInPlace();
    // Blocks that were given up to a neighbour keep no bytes.
    e_.statistics_.peak_live_bytes = PeakBytes(e_.blocks_);
    e_.statistics_.arena_bytes = PlanMemory(e_.blocks_);
    e_.statistics_.kernels = num_steps;
  }

  // An output takes over the memory of an input that dies in this step, where the kernel allows it.
  void ShareInPlace() {
    std::vector<int> moved_to(e_.blocks_.size());
    for (size_t b = 0; b < moved_to.size(); ++b) moved_to[b] = static_cast<int>(b);
    for (size_t s = 0; s < e_.steps_.size(); ++s) {
      Step& step = e_.steps_[s];
      for (size_t o = 0; o < step.outputs.size(); ++o) {
        const int mine = BlockOf(step.outputs[o]);
        const int input = mine < 0 ? -1 : step.kernel->InPlaceInput(static_cast<int>(o));
        if (input < 0) continue;
        int theirs = BlockOf(step.inputs[input]);
        if (theirs < 0) continue;
        theirs = moved_to[theirs];
        if (theirs == mine || e_.blocks_[theirs].last_step != static_cast<int>(s) ||
            e_.blocks_[theirs].bytes != e_.blocks_[mine].bytes || IsPinned(theirs) ||
            ReadsTwice(step, input)) {
          continue;
        }
        e_.blocks_[theirs].last_step = e_.blocks_[mine].last_step;
        e_.blocks_[mine].bytes = 0;
        moved_to[mine] = theirs;
        if (IsPinned(mine)) pinned_.push_back(theirs);
      }
    }
    for (Representation& r : e_.representations_) {
      if (r.home == Home::kBlock) r.index = moved_to[r.index];
    }
  }

  // Whether the step reads this input's memory at another place too, where a result in place would
  // be taken for the input (d + e + d).
  bool ReadsTwice(const Step& step, int input) const {
    const int block = BlockOf(step.inputs[input]);
    return std::count_if(step.inputs.begin(), step.inputs.end(),
                         [&](int r) { return BlockOf(r) == block; }) > 1;
  }

  bool IsPinned(int block) const {
    return std::find(pinned_.begin(), pinned_.end(), block) != pinned_.end();
  }

  Executable& e_;
  const Graph& graph_;
  std::vector<int> gradient_of_;  // variable whose gradient a value is, or -1
  std::vector<int> pinned_;       // blocks of inputs and outputs: they outlive the run
  std::map<ValueId, std::vector<int>> copies_;
};

Executable::Executable(const Graph& graph, const Backend& backend, const VariableStore* share)
    : graph_(graph), backend_(backend) {
  Compiler(*this, share).Run();
}

Executable::~Executable() = default;

std::unique_ptr<VariableStore> Executable::MakeStore(
    const VariableStore::Allocate& allocate_gradients) const {
  std::vector<VariablePlace> places;
  for (size_t v = 0; v < graph_.variables().size(); ++v) {
    const Variable& variable = graph_.variables()[v];
    const Layout& layout = variable_layouts_[v];
    places.push_back({.name = variable.name,
                      .tf_shape = variable.tf_shape,
                      .shape = variable.shape,
                      .layout = layout.is_any() ? variable.plain_layout() : layout,
                      .plain_layout = variable.plain_layout(),
                      .initializer = variable.initializer,
                      .trainable = variable.trainable,
                      .l2_regularized = variable.l2_regularized});
  }
  return std::make_unique<VariableStore>(backend_, graph_.compute(), std::move(places),
                                         ready_order_, allocate_gradients);
}

Tensor Executable::Locate(int representation) const {
  if (representation < 0) return {};
  const Representation& r = representations_[representation];
  if (r.home != Representation::Home::kBlock) {
    const int place = store_->Find(graph_.variables()[r.index].name);
    CAROLE_CHECK(place >= 0, "the store has no variable {}", graph_.variables()[r.index].name);
    const Tensor t =
        r.home == Representation::Home::kWeight ? store_->Weight(place) : store_->Gradient(place);
    CAROLE_CHECK_EQ(t.layout, r.layout, "layout of {}", graph_.variables()[r.index].name);
    return t;
  }
  const Value& value = graph_.value(r.value);
  return {.data = arena_.data() + blocks_[r.index].offset,
          .shape = value.shape,
          .dtype = value.dtype,
          .layout = r.layout};
}

void Executable::Bind(const VariableStore& store) {
  store_ = &store;
  arena_ = Buffer(statistics_.arena_bytes);
  for (Step& step : steps_) {
    KernelMemory memory;
    for (int i : step.inputs) memory.inputs.push_back(Locate(i));
    for (int o : step.outputs) memory.outputs.push_back(Locate(o));
    if (step.workspace >= 0) memory.workspace = arena_.data() + blocks_[step.workspace].offset;
    step.kernel->Bind(memory);
  }
}

Tensor Executable::Input(const std::string& name) const {
  return Locate(primary_[graph_.input(name)]);
}

std::vector<double> Executable::Output(ValueId value) const {
  CAROLE_CHECK(store_ != nullptr && primary_[value] >= 0, "value {} was not computed", value);
  Tensor from = Locate(primary_[value]);
  const Layout plain = Layout::PlainActivation(from.shape);
  Buffer reordered;
  if (from.layout != plain) {  // a plain one, as every loss, is read where it lies
    Tensor to{.data = nullptr, .shape = from.shape, .dtype = from.dtype, .layout = plain};
    reordered = Buffer(to.bytes());
    to.data = reordered.data();
    backend_.Reorder(from, to);
    from = to;
  }
  std::vector<double> values(static_cast<size_t>(from.size()));
  if (from.dtype == DType::kF64) {
    std::copy_n(from.as<double>(), values.size(), values.begin());
  } else if (from.dtype == DType::kI32) {
    std::copy_n(from.as<int32_t>(), values.size(), values.begin());
  } else {
    std::copy_n(from.as<float>(), values.size(), values.begin());
  }
  return values;
}

void Executable::Run(const RunContext& context, const GradientReady& gradient_ready) {
  CAROLE_CHECK(store_ != nullptr, "Run() before Bind()");
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = Clock::now();
  for (Step& step : steps_) {
    step.kernel->Run(context);
    if (gradient_ready) {
      for (int ready : step.ready) gradient_ready(ready);
    }
    const Clock::time_point after = Clock::now();
    step.milliseconds += std::chrono::duration<double, std::milli>(after - before).count();
    ++step.runs;
    before = after;
  }
}

std::vector<OpTime> Executable::Times() const {
  std::map<std::pair<Phase, OpKind>, OpTime> times;
  for (const Step& step : steps_) {
    OpTime& t =
        times.try_emplace({step.phase, step.kind}, OpTime{step.kind, step.phase}).first->second;
    t.milliseconds += step.milliseconds;
    t.runs += step.runs;
  }
  std::vector<OpTime> list;
  for (const auto& [key, time] : times) list.push_back(time);
  return list;
}

double Executable::PhaseMilliseconds(Phase phase) const {
  double sum = 0;
  for (const Step& step : steps_) sum += step.phase == phase ? step.milliseconds : 0;
  return sum;
}

void Executable::ResetTimes() {
  for (Step& step : steps_) {
    step.milliseconds = 0;
    step.runs = 0;
  }
}

std::string Executable::Describe() const {
  std::string text;
  auto describe = [&](int representation) -> std::string {
    if (representation < 0) return "-";
    const Representation& r = representations_[representation];
    return graph_.shape(r.value).ToString() + " " + r.layout.ToString();
  };
  for (const Step& step : steps_) {
    text += fmt::format("{:9.3f} ms  {:<24} {:<48}",
                        step.runs ? step.milliseconds / static_cast<double>(step.runs) : 0.0,
                        Name(step.kind), step.name);
    for (int i : step.inputs) text += " " + describe(i);
    text += " ->";
    for (int o : step.outputs) text += " " + describe(o);
    text += "\n";
  }
  return text;
}

}  // namespace carole
