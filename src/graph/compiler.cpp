// The compiler: turns a graph into the steps (kernels), representations and memory blocks of an
// Executable.
//
// THE TASK. A graph says what is computed. It does not say in which layout each tensor is stored,
// and layouts decide about speed: oneDNN's convolutions want blocks of 16 channels, a fully
// connected layer wants rows. Each kernel chooses the layouts that it reads and writes. If a tensor
// has another layout than a kernel wants, a reorder must be inserted, which costs a pass over
// memory. The compiler makes the kernels, inserts the reorders, and plans where everything is
// stored.
//
// THE DATA.
//   representation  A value in one layout and type, with its home: a block of the arena, or a
//                   variable's weight or gradient in the VariableStore. The first one of a value is
//                   its primary one. Others are copies (copies_): reordered, or cast to another
//                   type.
//   step            A kernel with the representations that it reads and writes.
//   block           A piece of the arena with the range of steps in which it lives.
//
// THE PHASES.
//   1. AddLeaves(): makes representations for inputs of the graph (blocks in plain layouts) and for
//      variables. A weight has no layout yet (Any), unless the layouts of another store are shared.
//   2. For each node of the schedule: SpecOf() describes it with the current layouts of its inputs,
//      and the backend makes a kernel for it. Obtain() provides each input in the layout and type
//      that the kernel wants: the primary representation, an existing copy, or a new copy made by a
//      reorder. So a value is reordered at most once to each layout. PlaceResult() makes the
//      representations of the outputs. If a gradient of a variable must be in another layout or
//      type than the kernel writes, the kernel writes to a block, and a reorder follows.
//   3. PlaceBlocks(): the steps are known now, and so is the lifetime of each block.
//      ShareInPlace() lets outputs overwrite inputs that die in the same step, PlanMemory() sets
//      the offsets.
//
// Kernels are made in the order of the schedule. The layout of a result is chosen by the kernel
// that makes it, the layout of a weight by the first kernel that reads it. Later kernels are
// offered that layout and usually accept it. This greedy order needs no search. On ResNet-50 with
// oneDNN it leaves one reorder of activations, that of the image
// (tests/graph/resnet_plan_test.cpp).
//
// EXAMPLE with oneDNN, forward only: images -> conv1 -> ReLU -> reshape -> linear.
//   step 0  reorder   images, NHWC (block 0)       -> images, NCHW (block 1)
//   step 1  conv1     images NCHW, w1 (blocked)    -> y1, nChw16c (block 2)
//   step 2  ReLU      y1                           -> y2, nChw16c (block 3, overwrites block 2)
//   step 3  reorder   y2                           -> y2, NHWC (block 4)
//   step 4  linear    y2 reshaped, w2              -> y3 (block 5)
//   The convolution wants its three input channels in NCHW, so the image is reordered. w1 had no
//   layout and gets the one that conv1 wants. A reshape needs a plain layout and is no step: its
//   result is an alias of block 4 with another shape. Block 3 may share memory with block 2,
//   because y1 dies in step 2. Block 1 is dead after step 1, so block 4 may have its memory. Block
//   0 is an input and block 5 an output of the graph: they are pinned, and nothing overwrites them.
//
// CASTS. If activations are 16-bit, kernels read 16-bit copies of weights, and some backends write
// 16-bit gradients of filters. On GPUs, a launch takes longer than most casts, so casts are
// collected and done in batches (OpKind::kCasts). All weights are cast in one step, which is moved
// to the front: step 0. An optimizer may take over this work (Executable::TakeWeightCopies()); the
// Executable then skips step 0. Casts of gradients are done for each 8 MiB, so that the all-reduce
// of the first ones does not have to wait for the last ones.
//
// RECOMPUTATION (recompute.h). A node that appears a second time in the schedule gets a second
// kernel for the same OpSpec, so that its results have the same bits. They become the primary
// representations, which all later kernels read.
#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/graph/executable_parts.h"
#include "src/graph/precision.h"

namespace carole {

class Executable::Compiler {
 public:
  Compiler(Executable& e, const VariableStore* share_layouts_of, const Schedule& schedule)
      : e_(e), graph_(e.graph_), schedule_(schedule), batches_casts_(CanBatchCasts(e.backend_)) {
    e_.primary_.assign(graph_.num_values(), -1);
    gradient_of_.assign(graph_.num_values(), -1);
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      const int shared = share_layouts_of == nullptr ? -1 : share_layouts_of->Find(variable.name);
      e_.variable_layouts_.push_back(shared < 0 ? Layout::Any()
                                                : share_layouts_of->variables()[shared].layout);
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
        AddRecomputedKernel(n);
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

  // Casts without change of layout that one kernel will do together.
  struct Casts {
    std::vector<int> from, to;
    size_t bytes = 0;
  };

  // Whether the backend has a kernel for many casts: GPUs do, because a launch takes longer than
  // most casts.
  static bool CanBatchCasts(const Backend& backend) {
    const TensorSpec x{.shape = {1}, .layout = Layout::RowMajor()};
    TensorSpec y = x;
    y.dtype = backend.activation_dtype();
    return y.dtype != x.dtype &&
           backend.Supports({.kind = OpKind::kCasts, .inputs = {x}, .outputs = {y}});
  }

  // Makes the representations of the graph's inputs and variables.
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

  // Returns a representation of the value in this layout and type. Adds a reorder or cast if there
  // is none yet.
  int Obtain(ValueId value, const Layout& layout, DType dtype, const Node& reader) {
    const int primary = e_.primary_[value];
    CAROLE_CHECK(primary >= 0, "{} {} reads a value that no node has computed", Name(reader.kind),
                 reader.name);
    if (e_.representations_[primary].home == Home::kGradient) AddGradientCasts();
    Representation& r = e_.representations_[primary];
    if (r.layout.is_any()) {  // a weight without a layout: its first reader chooses
      // A plain layout is taken even if the reader wants another type, so that its copy needs no
      // reorder, only a cast. A blocked layout belongs to one type; it is taken if that is the
      // weight's own type.
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
    CAROLE_CHECK(
        e_.representations_[from].dtype != DType::kI32,
        "{} {}: an integer tensor cannot be reordered; only the kind of kernel that made it "
        "can read it",
        Name(node.kind), node.name);
    const bool weight = e_.representations_[from].home != Home::kBlock ||
                        e_.representations_[to].home != Home::kBlock;
    ++(weight ? e_.statistics_.weight_reorders : e_.statistics_.activation_reorders);
    if (batches_casts_ && DeferCast(from, to)) return;
    const OpSpec spec{.kind = OpKind::kReorder, .inputs = {SpecOf(from)}, .outputs = {SpecOf(to)}};
    AddStep(e_.backend_.MakeKernel(spec), OpKind::kReorder, node.name, {from}, {to});
  }

  // If this is a cast of a weight, or a cast to a gradient, without change of layout: keeps it for
  // a batch of casts and returns true.
  bool DeferCast(int from, int to) {
    const Representation &x = e_.representations_[from], &y = e_.representations_[to];
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

  void AddGradientCasts() { AddCasts("gradients", gradient_casts_); }

  // Adds the cast of all weights as step 0. In training, the copies are pinned: they must survive
  // until the next run if an optimizer maintains them.
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

  // Checks that a kernel writes each variable's gradient to its arena. That fails if two variables
  // share a gradient, or if a gradient is a reshaped value.
  void CheckGradients() const {
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      const bool made = std::find(e_.ready_order_.begin(), e_.ready_order_.end(),
                                  static_cast<int>(v)) != e_.ready_order_.end();
      CAROLE_CHECK(variable.gradient == kNone || made,
                   "no kernel makes the gradient of {} alone; let a separate operation read the "
                   "variable",
                   variable.name);
    }
  }

  // A reshape of a plain layout is the same memory with another shape. It needs no kernel.
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

  // Describes the node with types that the backend supports, and with the current layouts of its
  // inputs.
  OpSpec SpecOf(const Node& node) const {
    OpSpec spec = graph_.Spec(node);
    UnifyTypes(spec);
    if (!e_.backend_.Supports(spec)) WidenToFp32(spec);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!spec.inputs[i].present) continue;
      const Representation& r = e_.representations_[e_.primary_[node.inputs[i]]];
      TensorSpec& t = spec.inputs[i];
      if (r.dtype == t.dtype) {
        t.layout = r.layout;
      } else if (r.home != Home::kWeight) {  // it must be cast, which can change the layout as well
        t.layout = Layout::PlainActivation(t.shape);
      }
    }
    if (batches_casts_) UseNarrowFilterGradient(spec);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int variable = spec.outputs[o].present ? gradient_of_[node.outputs[o]] : -1;
      if (variable >= 0) spec.outputs[o].layout = e_.variable_layouts_[variable];
    }
    return spec;
  }

  // Lets a filter gradient be written in the type of its factors if the backend supports that. It
  // is cast to fp32 with others.
  void UseNarrowFilterGradient(OpSpec& spec) const {
    if (spec.kind != OpKind::kConv2dBackwardFilter) return;
    OpSpec rounded = spec;
    rounded.outputs[0].dtype = spec.inputs[0].dtype;
    if (e_.backend_.Supports(rounded)) spec = std::move(rounded);
  }

  // Adds the kernel of a node that is recomputed. It is made from the same spec as the first one,
  // so that its results have the same bits. Later readers get the new results.
  void AddRecomputedKernel(NodeId n) {
    const Node& node = graph_.nodes()[n];
    OpSpec spec = specs_.at(n);
    // The moving statistics have been updated by the first kernel. With decay 1 they do not change.
    if (auto* norm = std::get_if<BatchNormAttributes>(&spec.attributes)) norm->decay = 1;
    // Forget copies of the old results and reordered copies of weights: their memory should not be
    // kept until here. Copies of weights that were cast in a batch live for the whole step anyway.
    for (ValueId id : node.inputs) {
      if (id != kNone && graph_.value(id).variable != kNone && !batches_casts_) copies_.erase(id);
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
    std::vector<std::pair<int, int>> to_reorder;  // (result, its home), if they differ
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == kNone) {
        outputs.push_back(-1);
        continue;
      }
      outputs.push_back(
          PlaceResult(id, kernel->output_layouts()[o], spec.outputs[o].dtype, to_reorder));
    }
    AddStep(std::move(kernel), node.kind, node.name, std::move(inputs), std::move(outputs));
    for (auto [from, to] : to_reorder) AddReorder(from, to, node);
  }

  // Returns the representation to which a kernel writes a result that it makes in this layout and
  // type. Makes the value's primary representation (its home): a block or a variable's gradient. If
  // the kernel cannot write there directly, adds both to `to_reorder`.
  int PlaceResult(ValueId id, const Layout& layout, DType made,
                  std::vector<std::pair<int, int>>& to_reorder) {
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
    to_reorder.emplace_back(result, home);
    return result;
  }

  // The index of the representation's block, or -1 if it has none.
  int BlockOf(int representation) const {
    if (representation < 0) return -1;
    const Representation& r = e_.representations_[representation];
    return r.home == Home::kBlock ? r.index : -1;
  }

  // Computes the blocks' lifetimes and offsets.
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
    // Blocks that were merged into others have 0 bytes now.
    e_.statistics_.peak_live_bytes = PeakBytes(e_.blocks_);
    e_.statistics_.arena_bytes = PlanMemory(e_.blocks_);
    e_.statistics_.kernels = num_steps;
  }

  // Lets an output take over the block of an input that dies in this step, if the kernel allows it.
  void ShareInPlace() {
    std::vector<int> merged_into(e_.blocks_.size());
    for (size_t b = 0; b < merged_into.size(); ++b) merged_into[b] = static_cast<int>(b);
    for (size_t s = 0; s < e_.steps_.size(); ++s) {
      Step& step = e_.steps_[s];
      for (size_t o = 0; o < step.outputs.size(); ++o) {
        const int output_block = BlockOf(step.outputs[o]);
        const int input = output_block < 0 ? -1 : step.kernel->InPlaceInput(static_cast<int>(o));
        if (input < 0) continue;
        int input_block = BlockOf(step.inputs[input]);
        if (input_block < 0) continue;
        input_block = merged_into[input_block];
        if (input_block == output_block ||
            e_.blocks_[input_block].last_step != static_cast<int>(s) ||
            e_.blocks_[input_block].bytes != e_.blocks_[output_block].bytes ||
            IsPinned(input_block) || ReadsTwice(step, input)) {
          continue;
        }
        e_.blocks_[input_block].last_step = e_.blocks_[output_block].last_step;
        e_.blocks_[output_block].bytes = 0;
        merged_into[output_block] = input_block;
        if (IsPinned(output_block)) pinned_.push_back(input_block);
      }
    }
    for (Representation& r : e_.representations_) {
      if (r.home == Home::kBlock) r.index = merged_into[r.index];
    }
  }

  // Whether another input of the step has the same memory (as in d + e + d). Then a result must not
  // overwrite it, because the kernel would read the result instead of that input.
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
  const bool batches_casts_;
  Casts weight_casts_, gradient_casts_;
  Phase phase_ = Phase::kForward;   // of the steps that are added now
  std::map<NodeId, OpSpec> specs_;  // of the nodes that will be recomputed
  std::vector<int> gradient_of_;    // the variable whose gradient a value is, or -1
  std::vector<int> pinned_;         // blocks of inputs and outputs, which outlive the run
  std::map<ValueId, std::vector<int>> copies_;  // all representations but the primary one
};

Executable::Executable(const Graph& graph, const Backend& backend,
                       const VariableStore* share_layouts_of, const Schedule& schedule)
    : graph_(graph), backend_(backend) {
  Compiler(*this, share_layouts_of, schedule.empty() ? PlainSchedule(graph) : schedule).Run();
}

}  // namespace carole
