// Makes an Executable's steps, representations and blocks out of a graph.
#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/graph/executable_parts.h"
#include "src/graph/precision.h"

namespace carole {

class Executable::Compiler {
 public:
  Compiler(Executable& e, const VariableStore* share, const Schedule& schedule)
      : e_(e), graph_(e.graph_), schedule_(schedule), gathers_casts_(CanGatherCasts(e.backend_)) {
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
    std::vector<int> times(graph_.nodes().size(), 0);
    for (NodeId n : schedule_) ++times[n];
    std::vector<bool> seen(graph_.nodes().size(), false);
    for (NodeId n : schedule_) {
      const Node& node = graph_.nodes()[n];
      if (node.kind == OpKind::kReshape) {
        AddReshape(node);
      } else if (seen[n]) {
        AddKernelAgain(n);
      } else {
        const OpSpec spec = SpecOf(node);
        if (times[n] > 1) specs_.emplace(n, spec);
        AddKernel(node, spec, node.phase);
      }
      seen[n] = true;
    }
    AddGradientCasts();
    CheckGradients();
    AddWeightCasts();
    PlaceBlocks();
  }

 private:
  using Home = Representation::Home;

  // Representations of one layout that one launch casts.
  struct Casts {
    std::vector<int> from, to;
    size_t bytes = 0;
  };

  // Devices whose launches take longer than most casts have a kernel for many.
  static bool CanGatherCasts(const Backend& backend) {
    const TensorSpec x{.shape = {1}, .layout = Layout::RowMajor()};
    TensorSpec y = x;
    y.dtype = backend.activation_dtype();
    return y.dtype != x.dtype &&
           backend.Supports({.kind = OpKind::kCasts, .inputs = {x}, .outputs = {y}});
  }

  void AddLeaves() {
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer != kNone) continue;
      if (value.variable != kNone) {
        e_.primary_[id] = Add(
            {Home::kWeight, id, e_.variable_layouts_[value.variable], value.dtype, value.variable});
      } else {
        e_.primary_[id] = AddBlock(id, Layout::PlainActivation(value.shape), value.dtype);
        pinned_.push_back(e_.representations_[e_.primary_[id]].index);
      }
    }
  }

  int Add(Representation representation) {
    e_.representations_.push_back(std::move(representation));
    return static_cast<int>(e_.representations_.size() - 1);
  }

  int AddBlock(ValueId value, const Layout& layout, DType dtype) {
    e_.blocks_.push_back({.bytes = ByteSize(graph_.shape(value), dtype, layout)});
    return Add({Home::kBlock, value, layout, dtype, static_cast<int>(e_.blocks_.size() - 1)});
  }

  TensorSpec SpecOf(int representation) const {
    const Representation& r = e_.representations_[representation];
    return {.shape = graph_.shape(r.value), .dtype = r.dtype, .layout = r.layout};
  }

  // The value in this layout and type; reordered or cast at most once for each.
  int Obtain(ValueId value, const Layout& layout, DType dtype, const Node& reader) {
    const int primary = e_.primary_[value];
    CAROLE_CHECK(primary >= 0, "{} {} reads a value that nothing has made", Name(reader.kind),
                 reader.name);
    if (e_.representations_[primary].home == Home::kGradient) AddGradientCasts();
    Representation& r = e_.representations_[primary];
    if (r.layout.is_any()) {  // a weight that nobody has placed yet: its first reader chooses
      // One in another type too, so that its copy is a mere cast; but only that type has its
      // blocks.
      const bool choose = layout.is_plain() || (r.dtype == dtype && !layout.is_any());
      r.layout = choose ? layout : graph_.variables()[r.index].plain_layout();
      e_.variable_layouts_[r.index] = r.layout;
    }
    if (r.dtype == dtype && (layout.is_any() || r.layout == layout)) return primary;
    for (int other : copies_[value]) {
      const Representation& copy = e_.representations_[other];
      if (copy.layout == layout && copy.dtype == dtype) return other;
    }
    const int copy = AddBlock(value, layout, dtype);
    copies_[value].push_back(copy);
    AddReorder(primary, copy, reader);
    return copy;
  }

  void AddReorder(int from, int to, const Node& node) {
    CAROLE_CHECK(e_.representations_[from].dtype != DType::kI32,
                 "{} {}: integers would be reordered, which only their maker may read",
                 Name(node.kind), node.name);
    const bool weight = e_.representations_[from].home != Home::kBlock ||
                        e_.representations_[to].home != Home::kBlock;
    ++(weight ? e_.statistics_.weight_reorders : e_.statistics_.activation_reorders);
    if (gathers_casts_ && Gather(from, to)) return;
    const OpSpec spec{.kind = OpKind::kReorder, .inputs = {SpecOf(from)}, .outputs = {SpecOf(to)}};
    AddStep(e_.backend_.MakeKernel(spec), OpKind::kReorder, node.name, {from}, {to});
  }

  // Keeps a mere cast of a weight or to a gradient for a launch with others.
  bool Gather(int from, int to) {
    const Representation &x = e_.representations_[from], &y = e_.representations_[to];
    const bool from_weight = x.home == Home::kWeight, to_gradient = y.home == Home::kGradient;
    if (x.dtype == y.dtype || x.layout != y.layout || from_weight == to_gradient) return false;
    Casts& casts = from_weight ? weight_casts_ : gradient_casts_;
    casts.from.push_back(from);
    casts.to.push_back(to);
    casts.bytes += ByteSize(graph_.shape(y.value), y.dtype, y.layout);
    // What is sent to other ranks meanwhile should not wait for long.
    constexpr size_t kManyBytes = size_t{8} << 20;
    if (to_gradient && casts.bytes >= kManyBytes) AddGradientCasts();
    return true;
  }

  void AddGradientCasts() { AddCasts("gradients", gradient_casts_); }

  // Before all else: each weight's copy is there for all that reads it, and in training for the
  // next step, if an optimizer keeps it up.
  void AddWeightCasts() {
    if (weight_casts_.from.empty()) return;
    phase_ = Phase::kForward;
    AddCasts("weights", weight_casts_);
    std::rotate(e_.steps_.begin(), e_.steps_.end() - 1, e_.steps_.end());
    e_.casts_weights_ = true;
    const auto& variables = graph_.variables();
    if (std::none_of(variables.begin(), variables.end(),
                     [](const Variable& v) { return v.gradient != kNone; }))
      return;
    for (int copy : e_.steps_.front().outputs) pinned_.push_back(BlockOf(copy));
  }

  void AddCasts(const std::string& name, Casts& casts) {
    if (casts.from.empty()) return;
    OpSpec spec{.kind = OpKind::kCasts};
    for (int r : casts.from) spec.inputs.push_back(SpecOf(r));
    for (int r : casts.to) spec.outputs.push_back(SpecOf(r));
    AddStep(e_.backend_.MakeKernel(spec), spec.kind, name, std::move(casts.from),
            std::move(casts.to));
    casts = {};
  }

  void AddStep(std::unique_ptr<Kernel> kernel, OpKind kind, const std::string& name,
               std::vector<int> inputs, std::vector<int> outputs) {
    Step step{.kernel = std::move(kernel),
              .kind = kind,
              .phase = phase_,
              .name = name,
              .inputs = std::move(inputs),
              .outputs = std::move(outputs),
              .ready = {}};
    if (step.kernel->workspace_bytes() > 0) {
      e_.blocks_.push_back({.bytes = step.kernel->workspace_bytes()});
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
    phase_ = node.phase;
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const int input =
        Obtain(from, Layout::PlainActivation(graph_.shape(from)), graph_.value(to).dtype, node);
    Representation alias = e_.representations_[input];
    alias.value = to;
    alias.layout = Layout::PlainActivation(graph_.shape(to));
    e_.primary_[to] = Add(alias);
  }

  // With types that the backend has a kernel for, and the layouts in which its inputs lie.
  OpSpec SpecOf(const Node& node) const {
    OpSpec spec = graph_.Spec(node);
    UnifyTypes(spec);
    if (!e_.backend_.Supports(spec)) Widen(spec);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!spec.inputs[i].present) continue;
      const Representation& r = e_.representations_[e_.primary_[node.inputs[i]]];
      TensorSpec& t = spec.inputs[i];
      if (r.dtype == t.dtype) {
        t.layout = r.layout;
      } else if (r.home != Home::kWeight) {  // a cast may as well reorder
        t.layout = Layout::PlainActivation(t.shape);
      }
    }
    if (gathers_casts_) RoundGradient(spec);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int variable = spec.outputs[o].present ? gradient_of_[node.outputs[o]] : -1;
      if (variable >= 0) spec.outputs[o].layout = e_.variable_layouts_[variable];
    }
    return spec;
  }

  // A filter's gradient that the device's library makes in the operands' type is cast with others.
  void RoundGradient(OpSpec& spec) const {
    if (spec.kind != OpKind::kConv2dBackwardFilter) return;
    OpSpec rounded = spec;
    rounded.outputs[0].dtype = spec.inputs[0].dtype;
    if (e_.backend_.Supports(rounded)) spec = std::move(rounded);
  }

  // The kernel of the first time, so that the results are the same bit for bit; they replace the
  // first ones for all that comes.
  void AddKernelAgain(NodeId n) {
    const Node& node = graph_.nodes()[n];
    OpSpec spec = specs_.at(n);
    // The moving statistics have moved: at this rate they stay.
    if (auto* norm = std::get_if<BatchNormAttributes>(&spec.attributes)) norm->decay = 1;
    // Neither old results nor reordered weights are worth keeping until here; those that were cast
    // with others are.
    for (ValueId id : node.inputs) {
      if (id != kNone && graph_.value(id).variable != kNone && !gathers_casts_) copies_.erase(id);
    }
    for (ValueId id : node.outputs) copies_.erase(id);
    AddKernel(node, spec, Phase::kBackward);
  }

  void AddKernel(const Node& node, const OpSpec& spec, Phase phase) {
    phase_ = phase;
    auto kernel = e_.backend_.MakeKernel(spec);
    std::vector<int> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorSpec& t = spec.inputs[i];
      inputs.push_back(t.present ? Obtain(node.inputs[i], kernel->input_layouts()[i], t.dtype, node)
                                 : -1);
    }
    std::vector<std::pair<int, int>> to_move;  // results that belong elsewhere
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == kNone) {
        outputs.push_back(-1);
        continue;
      }
      outputs.push_back(
          PlaceResult(id, kernel->output_layouts()[o], spec.outputs[o].dtype, to_move));
    }
    AddStep(std::move(kernel), node.kind, node.name, std::move(inputs), std::move(outputs));
    for (auto [from, to] : to_move) AddReorder(from, to, node);
  }

  // Where a kernel writes a result that it makes in this layout and type. Where that is not where
  // it belongs, `to_move` gets both.
  int PlaceResult(ValueId id, const Layout& layout, DType made,
                  std::vector<std::pair<int, int>>& to_move) {
    const DType stored = graph_.value(id).dtype;
    const int variable = gradient_of_[id];
    const Layout block_layout =
        made == stored || layout.is_plain() ? layout : Layout::PlainActivation(graph_.shape(id));
    const int home =
        variable < 0 ? AddBlock(id, block_layout, stored)
                     : Add({Home::kGradient, id, e_.variable_layouts_[variable], stored, variable});
    e_.primary_[id] = home;
    if (made == stored && layout == e_.representations_[home].layout) return home;
    const int result = AddBlock(id, layout, made);
    to_move.emplace_back(result, home);
    return result;
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
      if (const int b = e_.steps_[s].workspace; b >= 0)
        e_.blocks_[b].first_step = e_.blocks_[b].last_step = s;
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
    // Blocks that were given up to a neighbor keep no bytes.
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
  const Schedule& schedule_;
  const bool gathers_casts_;
  Casts weight_casts_, gradient_casts_;
  Phase phase_ = Phase::kForward;   // of the steps that are added now
  std::map<NodeId, OpSpec> specs_;  // of nodes that come again
  std::vector<int> gradient_of_;    // variable whose gradient a value is, or -1
  std::vector<int> pinned_;         // blocks of inputs and outputs: they outlive the run
  std::map<ValueId, std::vector<int>> copies_;
};

Executable::Executable(const Graph& graph, const Backend& backend, const VariableStore* share,
                       const Schedule& schedule)
    : graph_(graph), backend_(backend) {
  Compiler(*this, share, schedule.empty() ? PlainSchedule(graph) : schedule).Run();
}

}  // namespace carole
