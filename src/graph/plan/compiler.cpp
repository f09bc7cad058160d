// The compiler: turns a graph into a plan, that is into steps (kernels), representations and memory
// blocks.
//
// THE TASK. A graph says what is computed. It does not say in which layout each tensor is stored,
// and layouts decide about speed: oneDNN's convolutions want blocks of 16 channels, a fully
// connected layer wants rows. Each kernel chooses the layouts that it reads and writes. If a tensor
// has another layout than a kernel wants, a reorder must be inserted, which costs a pass over
// memory. The compiler makes the kernels, inserts the reorders, and plans where everything is
// stored.
//
// THE DATA (plan.h).
//   representation  A value in one layout and type, with its home: a block of the arena, or a
//                   variable's weight or gradient in the VariableStore. The first one of a value is
//                   its primary one. Others are copies: reordered, or cast to another type.
//   step            A kernel with the representations that it reads and writes.
//   block           A piece of the arena with the range of steps in which it lives.
//
// THE PHASES.
//   1. AddLeaves(): makes representations for inputs of the graph (blocks in plain layouts) and for
//      variables. A weight has no layout yet (Any), unless the layouts of another store are shared.
//   2. For each node of the schedule: SpecOf() describes it with the current layouts of its inputs,
//      and the backend makes a kernel for it. Obtain() (reorders.h) provides each input in the
//      layout and type that the kernel wants: the primary representation, an existing copy, or a
//      new copy made by a reorder. So a value is reordered at most once to each layout.
//      PlaceResult() makes the representations of the outputs. If a gradient of a variable must be
//      in another layout or type than the kernel writes, the kernel writes to a block, and a
//      reorder follows.
//   3. PlaceBlocks() (place_blocks.h): the steps are known now, and so is the lifetime of each
//      block. Outputs overwrite inputs that die in the same step, and PlanMemory() sets the
//      offsets.
// PlanBuilder (plan_builder.h) holds the plan while it grows.
//
// Kernels are made in the order of the schedule. The layout of a result is chosen by the kernel
// that makes it, the layout of a weight by the first kernel that reads it. Later kernels are
// offered that layout and usually accept it. This greedy order needs no search. On ResNet-50 with
// oneDNN it leaves one reorder of activations, that of the image
// (tests/graph/plan/resnet_plan_test.cpp).
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
// collected and done in batches (op::kCasts). All weights are cast in one step that runs before
// the others: Plan::weight_casts. An optimizer may take over this work
// (Executable::TakeWeightCopies()); the Executable then leaves that step out. Casts of gradients
// are done for each 8 MiB, so that the all-reduce of the first ones does not have to wait for the
// last ones.
//
// RECOMPUTATION (recompute.h). A node that appears a second time in the schedule gets a second
// kernel for the same OpSpec, so that its results have the same bits. They become the primary
// representations, which all later kernels read.
#include "src/graph/plan/compiler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/core/check.h"
#include "src/graph/plan/plan_builder.h"
#include "src/graph/plan/reorders.h"
#include "src/graph/precision.h"

namespace carole {
namespace {

using Home = Representation::Home;

// Returns the layouts that the variables have in the store, Any if they are not in it.
std::vector<Layout> LayoutsIn(const VariableStore* store, const Graph& graph) {
  std::vector<Layout> layouts;
  for (const Variable& variable : graph.variables()) {
    const int shared = store == nullptr ? -1 : store->Find(variable.name);
    layouts.push_back(shared < 0 ? Layout::Any() : store->variables()[shared].layout);
  }
  return layouts;
}

// Turns nodes into steps. See the head of this file.
class Compiler {
 public:
  Compiler(const Graph& graph, const Backend& backend, const VariableStore* share_layouts_of)
      : graph_(graph),
        backend_(backend),
        builder_(graph, backend, LayoutsIn(share_layouts_of, graph)),
        reorders_(builder_),
        gradient_of_(graph.num_values(), -1) {
    for (size_t v = 0; v < graph.variables().size(); ++v) {
      const ValueId gradient = graph.variables()[v].gradient;
      if (gradient != kNone) gradient_of_[gradient] = static_cast<int>(v);
    }
  }

  Plan Run(const Schedule& schedule) {
    AddLeaves();
    std::vector<int> times(graph_.nodes().size(), 0);
    for (NodeId n : schedule) ++times[n];
    std::vector<bool> seen(graph_.nodes().size(), false);
    for (NodeId n : schedule) {
      const Node& node = graph_.nodes()[n];
      if (node.kind == op::kReshape) {
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
    reorders_.AddGradientCasts();
    CheckGradients();
    reorders_.AddWeightCasts();
    return builder_.Finish();
  }

 private:
  // Makes the representations of the graph's inputs and variables.
  void AddLeaves() {
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer != kNone) continue;
      if (value.variable != kNone) {
        const Layout& layout = layout_of(value.variable);
        builder_.SetPrimary(id,
                            builder_.Add({Home::kWeight, id, layout, value.dtype, value.variable}));
      } else {
        const Layout layout = Layout::PlainActivation(value.shape);
        const int input = builder_.AddBlock(id, layout, value.dtype);
        builder_.SetPrimary(id, input);
        builder_.Pin(input);
      }
    }
  }

  const Layout& layout_of(int variable) const { return builder_.plan().variable_layouts[variable]; }

  // Checks that a kernel writes each variable's gradient to its arena. That fails if two variables
  // share a gradient, or if a gradient is a reshaped value.
  void CheckGradients() const {
    const std::vector<int>& ready_order = builder_.plan().ready_order;
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      const bool made = std::find(ready_order.begin(), ready_order.end(), static_cast<int>(v)) !=
                        ready_order.end();
      CAROLE_CHECK(variable.gradient == kNone || made,
                   "no kernel makes the gradient of {} alone; let a separate operation read the "
                   "variable",
                   variable.name);
    }
  }

  // A reshape of a plain layout is the same memory with another shape. It needs no kernel.
  void AddReshape(const Node& node) {
    builder_.SetPhase(node.phase);
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const int input = reorders_.Obtain(from, Layout::PlainActivation(graph_.shape(from)),
                                       graph_.value(to).dtype, node);
    Representation alias = builder_.at(input);
    alias.value = to;
    alias.layout = Layout::PlainActivation(graph_.shape(to));
    builder_.SetPrimary(to, builder_.Add(alias));
  }

  // Describes the node with types that the backend supports, and with the current layouts of its
  // inputs.
  OpSpec SpecOf(const Node& node) const {
    OpSpec spec = graph_.Spec(node);
    UnifyTypes(spec);
    if (!backend_.Supports(spec)) WidenToFp32(spec);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!spec.inputs[i].present) continue;
      const Representation& r = builder_.at(builder_.PrimaryFor(node, node.inputs[i]));
      TensorSpec& t = spec.inputs[i];
      if (r.dtype == t.dtype) {
        t.layout = r.layout;
      } else if (r.home != Home::kWeight) {  // it must be cast, which can change the layout as well
        t.layout = Layout::PlainActivation(t.shape);
      }
    }
    if (reorders_.batches_casts()) UseNarrowFilterGradient(spec);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int variable = spec.outputs[o].present ? gradient_of_[node.outputs[o]] : -1;
      if (variable >= 0) spec.outputs[o].layout = layout_of(variable);
    }
    return spec;
  }

  // Lets a filter gradient be written in the type of its factors if the backend supports that. It
  // is cast to fp32 with others.
  void UseNarrowFilterGradient(OpSpec& spec) const {
    if (spec.kind != op::kConv2dBackwardFilter) return;
    OpSpec rounded = spec;
    rounded.outputs[0].dtype = spec.inputs[0].dtype;
    if (backend_.Supports(rounded)) spec = std::move(rounded);
  }

  // Adds the kernel of a node that is recomputed. It is made from the same spec as the first one,
  // so that its results have the same bits. Later readers get the new results.
  void AddRecomputedKernel(NodeId n) {
    const Node& node = graph_.nodes()[n];
    OpSpec spec = specs_.at(n);
    // The moving statistics and ranges have been updated by the first kernel, and stay as they are.
    if (auto* norm = spec.attributes.get_if<BatchNormAttributes>()) norm->decay = 1;
    if (auto* norm = spec.attributes.get_if<FoldedBatchNormAttributes>()) norm->decay = 1;
    if (auto* quant = spec.attributes.get_if<FakeQuantAttributes>())
      quant->range = FakeQuantAttributes::Range::kFixed;
    // Forget copies of the old results and reordered copies of weights: their memory should not be
    // kept until here. Copies of weights that were cast in a batch live for the whole step anyway.
    for (ValueId id : node.inputs) {
      if (id != kNone && graph_.value(id).variable != kNone && !reorders_.batches_casts())
        reorders_.ForgetCopies(id);
    }
    for (ValueId id : node.outputs) reorders_.ForgetCopies(id);
    AddKernel(node, spec, Phase::kBackward);
  }

  void AddKernel(const Node& node, const OpSpec& spec, Phase phase) {
    builder_.SetPhase(phase);
    auto kernel = backend_.MakeKernel(spec);
    std::vector<int> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorSpec& t = spec.inputs[i];
      inputs.push_back(
          t.present ? reorders_.Obtain(node.inputs[i], kernel->input_layouts()[i], t.dtype, node)
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
    builder_.AddStep(std::move(kernel), node.kind, node.name, std::move(inputs),
                     std::move(outputs));
    for (auto [from, to] : to_reorder) reorders_.AddReorder(from, to, node);
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
        variable < 0 ? builder_.AddBlock(id, block_layout, stored)
                     : builder_.Add({Home::kGradient, id, layout_of(variable), stored, variable});
    builder_.SetPrimary(id, home);
    if (made == stored && layout == builder_.at(home).layout) return home;
    const int result = builder_.AddBlock(id, layout, made);
    to_reorder.emplace_back(result, home);
    return result;
  }

  const Graph& graph_;
  const Backend& backend_;
  PlanBuilder builder_;
  Reorders reorders_;
  std::vector<int> gradient_of_;    // the variable whose gradient a value is, or -1
  std::map<NodeId, OpSpec> specs_;  // of the nodes that will be recomputed
};

}  // namespace

Plan Compile(const Graph& graph, const Backend& backend, const CompileOptions& options) {
  return Compiler(graph, backend, options.share_layouts_of)
      .Run(options.schedule.empty() ? PlainSchedule(graph) : options.schedule);
}

}  // namespace carole
