#include "nets/cell_stack.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "src/ops/ops.h"

namespace carole::nets {
namespace {

class CellStack {
 public:
  CellStack(NetBuilder& b, const CellStackOptions& options) : b_(b), options_(options) {}

  NetOutput Build(ValueId images) {
    NetOutput output;
    Stem(images);
    const int reductions[] = {options_.cells / 3, 2 * options_.cells / 3};
    for (int i = 0; i < options_.cells; ++i) {
      if (i == reductions[0] || i == reductions[1]) {
        Reduce(i, i == reductions[0] ? 0 : 1);
      } else {
        Append(fmt::format("Cell_{}", i),
               Cell(fmt::format("cell_{}", i), *options_.cell, 1, BeforeLast()));
      }
      if (b_.is_training() && i == reductions[1] - 1) output.aux_logits = AuxLogits(i);
    }
    const auto scope = b_.Enter("final_layer");
    const ValueId mean = GlobalAveragePool(b_, Relu(results_.back()), "pool");
    const ValueId pooled = b_.EndPoint("global_pool", Squeeze(b_, mean, "squeezed"));
    output.logits =
        b_.EndPoint("Logits", Dense(Dropout(b_, pooled, "dropout", options_.dense_keep)));
    output.predictions = b_.EndPoint("Predictions", Softmax(b_, output.logits, "predictions"));
    return output;
  }

 private:
  void Stem(ValueId images) {
    const char* norm = options_.small_images ? "l1_stem_bn" : "conv0_bn";
    const ConvGeometry same{.outputs = options_.stem_filters, .window = 3};
    const ConvGeometry strided{
        .outputs = options_.stem_filters, .window = 3, .stride = 2, .pad = Pad::kValid};
    const ValueId x = options_.small_images ? Conv2d(b_, images, "l1_stem_3x3", same, linear_)
                                            : Conv2d(b_, images, "conv0", strided, linear_);
    results_ = {kNone, Norm(x, norm)};
    if (!options_.small_images) {
      const CellDefinition& kind =
          options_.reduction == nullptr ? *options_.cell : *options_.reduction;
      for (int i : {0, 1}) {
        scale_ = i == 0 ? 0.25 : 0.5;
        results_.push_back(Cell(fmt::format("cell_stem_{}", i), kind, 2, BeforeLast()));
      }
      scale_ = 1;
    }
    b_.EndPoint("Stem", results_.back());
  }

  // Appends cell i, where the map shrinks, and the reduction cell before it if there is one.
  void Reduce(int i, int reduction) {
    scale_ *= 2;
    ValueId previous = BeforeLast();
    if (options_.reduction != nullptr) {
      Append(fmt::format("Reduction_Cell_{}", reduction),
             Cell(fmt::format("reduction_cell_{}", reduction), *options_.reduction, 2, previous));
      if (!options_.skip_reduction_input) previous = BeforeLast();
    }
    Append(fmt::format("Cell_{}", i), Cell(fmt::format("cell_{}", i), *options_.cell,
                                           options_.reduction == nullptr ? 2 : 1, previous));
  }

  void Append(const std::string& end_point, ValueId result) {
    results_.push_back(b_.EndPoint(end_point, result));
  }
  ValueId BeforeLast() const { return results_[results_.size() - 2]; }

  // Builds a cell. Its state 0 comes from the last result, its state 1 from `previous`. If
  // `previous` is kNone, state 1 comes from the last result too.
  ValueId Cell(const std::string& name, const CellDefinition& kind, int64_t stride,
               ValueId previous) {
    const auto scope = b_.Enter(name);
    width_ = static_cast<int64_t>(static_cast<double>(options_.filters) * scale_);
    drop_path_keep_ = FinalDropPathKeep();
    ++cell_number_;
    const ValueId net = results_.back();
    const ValueId second = previous == kNone ? net : FitPrevious(previous, b_.shape(net));
    std::vector<ValueId> states{Project(Relu(net), "1x1", "beginning_bn"), second};
    for (size_t i = 0; i < std::size(kind.combinations); ++i) {
      const auto combination = b_.Enter(fmt::format("comb_iter_{}", i));
      const auto& [left, right] = kind.combinations[i];
      const ValueId a = Apply("left", left, states, stride);
      const ValueId b = Apply("right", right, states, stride);
      const auto combine = b_.Enter("combine");
      states.push_back(ops::Add(b_.graph(), a, b));
    }
    return ConcatStates(states, kind.first_output);
  }

  // Returns the result of an earlier cell with the height and width of `net` and the number of
  // channels of this cell.
  ValueId FitPrevious(ValueId previous, const Shape& net) {
    const Shape& shape = b_.shape(previous);
    if (shape[2] != net[2] || shape[3] != net[3]) return FactorizedReduction(Relu(previous));
    return shape[1] == width_ ? previous : Project(Relu(previous), "prev_1x1", "prev_bn");
  }

  ValueId Apply(const char* side, const CellBranch& branch, const std::vector<ValueId>& states,
                int64_t stride) {
    const auto scope = b_.Enter(side);
    ValueId x = states[branch.state];
    if (branch.state > 1) stride = 1;
    const auto [kind, window] = branch.op;
    const PoolGeometry pool{.window = window, .stride = stride, .pad = Pad::kSame};
    switch (kind) {
      case CellOp::kIdentity:
        if (stride == 1 && HasWidth(x)) return x;
        return Project(Relu(x), "1x1", "bn_1", stride);
      case CellOp::kSeparable:
        return DropPath(SeparablePair(x, window, stride));
      case CellOp::kAverage:
        x = AveragePool2d(b_, x, "pool", pool);
        break;
      case CellOp::kMax:
        x = MaxPool2d(b_, x, "pool", pool);
        break;
    }
    return DropPath(HasWidth(x) ? x : Project(x, "1x1", "bn_1"));
  }

  ValueId SeparablePair(ValueId x, int64_t window, int64_t stride) {
    for (int i : {1, 2}) {
      const std::string name = fmt::format("{0}x{0}_{1}", window, i);
      x = SeparableConv2d(b_, Relu(x), "separable_" + name,
                          {.outputs = width_, .window = window, .stride = i == 1 ? stride : 1},
                          linear_);
      x = Norm(x, "bn_sep_" + name);
    }
    return x;
  }

  // Concatenates the states from `first` on. Those that differ from the last one in size or number
  // of channels are converted first.
  ValueId ConcatStates(std::vector<ValueId> states, size_t first) {
    const auto scope = b_.Enter("cell_output");
    const Shape last = b_.shape(states.back());
    for (size_t i = first; i < states.size(); ++i) {
      const auto reduction = b_.Enter(fmt::format("reduction_{}", i));
      const Shape shape = b_.shape(states[i]);
      if (shape[2] != last[2] || shape[3] != last[3]) {
        states[i] = FactorizedReduction(states[i]);
      } else if (shape[1] != last[1]) {
        states[i] = Project(states[i], "path_conv", "path_bn");
      }
    }
    states.erase(states.begin(), states.begin() + static_cast<int64_t>(first));
    return ops::Concat(b_.graph(), states);
  }

  // Halves height and width without losing information (TF-Slim's factorized_reduction): a 1x1
  // convolution of the pixels 0, 2, 4, ... gives one half of the channels. Another one, of the
  // pixels 1, 3, 5, ..., gives the other half.
  ValueId FactorizedReduction(ValueId x) {
    const int64_t half = width_ / 2;
    const ValueId even = Conv2d(b_, x, "path1_conv", {half, 1, 2}, linear_);
    const ValueId shifted = ops::Pad2d(b_.graph(), x, {-1, -1, 1, 1});
    const ValueId odd = Conv2d(b_, shifted, "path2_conv", {width_ - half, 1, 2}, linear_);
    return Norm(ops::Concat(b_.graph(), {even, odd}), "final_path_bn");
  }

  ValueId AuxLogits(int cell) {
    const auto scope = b_.Enter(fmt::format("aux_{}/aux_logits", cell));
    ValueId x = AveragePool2d(b_, Relu(results_.back()), "pool", {.window = 5, .stride = 3});
    x = Relu(Norm(Conv2d(b_, x, "proj", {128, 1}, linear_), "aux_bn0"));
    const Window map(b_.shape(x)[2], b_.shape(x)[3]);
    x = Conv2d(b_, x, "Conv", {.outputs = 768, .window = map, .pad = Pad::kValid}, linear_);
    return b_.EndPoint("AuxLogits", Dense(Flatten(b_, Relu(Norm(x, "aux_bn1")), "Flatten")));
  }

  ValueId Dense(ValueId x) {
    LayerOptions options = linear_;
    options.has_biases = true;
    return FullyConnected(b_, x, "FC", b_.num_classes(), options);
  }
  ValueId Project(ValueId x, const char* conv, const char* norm, int64_t stride = 1) {
    return Norm(Conv2d(b_, x, conv, {width_, 1, stride}, linear_), norm);
  }
  ValueId Norm(ValueId x, const std::string& name) {
    return BatchNorm(b_, x, name, options_.batch_norm);
  }
  bool HasWidth(ValueId x) const { return b_.shape(x)[1] == width_; }

  // Several branches read the same state. They share its ReLU, except in a quantized net: TF-Slim
  // has a ReLU in each branch, and TensorFlow quantizes the first one only.
  ValueId Relu(ValueId x) {
    if (b_.will_be_quantized()) return ops::Relu(b_.graph(), x);
    const auto [it, is_new] = relus_.try_emplace(x, kNone);
    if (is_new) it->second = ops::Relu(b_.graph(), x);
    return it->second;
  }

  // Returns the final keep probability of the current cell's paths. It decreases linearly with the
  // depth of the cell. At the first step it is 1 in all cells; it reaches this value after
  // drop_path_steps steps.
  double FinalDropPathKeep() const {
    const int total =
        options_.cells + (options_.small_images ? 0 : 2) + (options_.reduction == nullptr ? 0 : 2);
    return 1 - (cell_number_ + 1.0) / total * (1 - options_.drop_path_keep);
  }

  ValueId DropPath(ValueId x) {
    const int64_t layer = b_.NextDropoutLayer();
    if (!b_.uses_dropout() || options_.drop_path_keep == 1) return x;
    return ops::Dropout(b_.graph(), x,
                        {.keep = drop_path_keep_,
                         .layer = layer,
                         .per_row = true,
                         .schedule_steps = options_.drop_path_steps});
  }

  NetBuilder& b_;
  const CellStackOptions& options_;
  const LayerOptions linear_{.weights = Initializer::HeOut(),
                             .l2_weights = true,
                             .has_biases = false,
                             .activation = Activation::kNone};
  std::vector<ValueId> results_;      // the results of the stem and the cells
  std::map<ValueId, ValueId> relus_;  // by their input
  int cell_number_ = 0;               // includes stem cells and reduction cells
  double scale_ = 1;                  // factor for options_.filters
  int64_t width_ = 0;                 // output channels of a state in the current cell
  double drop_path_keep_ = 1;         // final keep probability in the current cell
};

}  // namespace

NetOutput BuildCellStack(NetBuilder& b, ValueId images, const CellStackOptions& options) {
  return CellStack(b, options).Build(images);
}

}  // namespace carole::nets
