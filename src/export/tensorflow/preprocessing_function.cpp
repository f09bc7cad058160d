#include "src/export/tensorflow/preprocessing_function.h"

#include <cmath>

namespace carole::exporting {
namespace {

using Attributes = TfGraph::Attributes;

// Appends nodes to the function's body. Each method returns the name of its result as an input of
// other nodes. Images are (H,W,C).
class ImageNodes {
 public:
  ImageNodes(const PreprocessingSteps& steps, std::string contents)
      : steps_(steps), contents_(std::move(contents)) {}

  std::string Run(const std::string& dct_method) {
    const std::string image = Add("DecodeJpeg", "image", {contents_},
                                  {{"channels", steps_.image_channels},
                                   {"fancy_upscaling", true},
                                   {"dct_method", dct_method}});
    const std::string shape =
        Add("Shape", "output", {image}, {{"T", TfType::kUint8}, {"out_type", TfType::kInt32}});
    sides_ = Slice(shape, Integers({0}), Integers({2}), TfType::kInt32);
    const auto side = static_cast<int32_t>(steps_.size);
    target_ = Integers({side, side});
    std::string x = Fit(Cast(image, TfType::kUint8, TfType::kFloat));
    if (steps_.image_channels == 3 && steps_.net_channels == 1) x = ToGray(x);
    return steps_.standardizes ? Standardize(x) : Normalize(x);
  }

  const TfGraph& graph() const { return graph_; }

 private:
  // `output`: TensorFlow's name of the operation's output.
  std::string Add(const std::string& operation, const std::string& output,
                  std::vector<std::string> inputs, Attributes attributes) {
    return graph_.Add(operation, operation, std::move(inputs), std::move(attributes)) + ":" +
           output + ":0";
  }
  static std::string Constant(const std::string& node) { return node + ":output:0"; }
  std::string Integers(const std::vector<int32_t>& values, std::vector<int64_t> dims = {}) {
    return Constant(graph_.AddIntegers("integers", values, std::move(dims)));
  }
  std::string Integer(int32_t value) { return Constant(graph_.AddInteger("integer", value)); }
  std::string Number(float value) { return Constant(graph_.AddNumber("number", value)); }

  std::string Cast(const std::string& x, TfType from, TfType to) {
    return Add("Cast", "y", {x}, {{"SrcT", from}, {"DstT", to}});
  }
  std::string Binary(const std::string& operation, const std::string& a, const std::string& b,
                     TfType type = TfType::kFloat) {
    return Add(operation, "z", {a, b}, {{"T", type}});
  }
  std::string Slice(const std::string& x, const std::string& begin, const std::string& size,
                    TfType type = TfType::kFloat) {
    return Add("Slice", "output", {x, begin, size}, {{"T", type}, {"Index", TfType::kInt32}});
  }
  std::string Join(const std::string& a, const std::string& b) {
    return Add("ConcatV2", "output", {a, b, Integer(0)},
               {{"T", TfType::kInt32}, {"N", int64_t{2}}, {"Tidx", TfType::kInt32}});
  }
  std::string Reduce(const std::string& operation, const std::string& x,
                     const std::vector<int32_t>& axes, bool keeps_dims) {
    return Add(operation, "output", {x, Integers(axes)},
               {{"T", TfType::kFloat}, {"Tidx", TfType::kInt32}, {"keep_dims", keeps_dims}});
  }

  // The part of an image from (top,left) on, with this height and width.
  std::string Part(const std::string& x, const std::string& start, const std::string& sides) {
    return Slice(x, Join(start, Integers({0})), Join(sides, Integers({-1})));
  }

  std::string Resize(const std::string& x, const std::string& sides) {
    const std::string batch = Add("ExpandDims", "output", {x, Integer(0)},
                                  {{"T", TfType::kFloat}, {"Tdim", TfType::kInt32}});
    const std::string resized =
        Add("ResizeBilinear", "resized_images", {batch, sides}, {{"T", TfType::kFloat}});
    return Add("Squeeze", "output", {resized},
               {{"T", TfType::kFloat}, {"squeeze_dims", std::vector<int64_t>{0}}});
  }

  std::string Fit(const std::string& x) {
    constexpr TfType kInt = TfType::kInt32;
    switch (steps_.geometry) {
      case Geometry::kCentralPart: {
        // A sixteenth, rounded down, is left out on each side.
        const std::string start = Binary("FloorDiv", sides_, Integer(16), kInt);
        const std::string both = Binary("Mul", start, Integer(2), kInt);
        return Resize(Part(x, start, Binary("Sub", sides_, both, kInt)), target_);
      }
      case Geometry::kShorterSide:
        return ResizeAndCrop(x);
      case Geometry::kCropOrPad:
        return CropOrPad(x);
      case Geometry::kAsItIs:
        return x;
    }
    return x;
  }

  std::string ResizeAndCrop(const std::string& x) {
    constexpr TfType kInt = TfType::kInt32;
    const std::string sides = Cast(sides_, kInt, TfType::kFloat);
    const std::string factor =
        Binary("RealDiv", Number(io::kEvaluationShorterSide), Reduce("Min", sides, {0}, false));
    const std::string scaled = Binary("Mul", sides, factor);
    const std::string whole =
        Add(steps_.truncates_sides ? "Floor" : "Round", "y", {scaled}, {{"T", TfType::kFloat}});
    const std::string new_sides = Cast(whole, TfType::kFloat, kInt);
    const std::string rest = Binary("Sub", new_sides, target_, kInt);
    return Part(Resize(x, new_sides), Binary("FloorDiv", rest, Integer(2), kInt), target_);
  }

  std::string CropOrPad(const std::string& x) {
    constexpr TfType kInt = TfType::kInt32;
    const std::string too_many =
        Binary("Maximum", Binary("Sub", sides_, target_, kInt), Integer(0), kInt);
    const std::string start = Binary("FloorDiv", too_many, Integer(2), kInt);
    const std::string cropped = Part(x, start, Binary("Minimum", sides_, target_, kInt));
    const std::string missing =
        Binary("Maximum", Binary("Sub", target_, sides_, kInt), Integer(0), kInt);
    const std::string before = Binary("FloorDiv", missing, Integer(2), kInt);
    const std::string amounts =
        Add("Pack", "output", {before, Binary("Sub", missing, before, kInt)},
            {{"T", kInt}, {"N", int64_t{2}}, {"axis", int64_t{1}}});
    return Add("Pad", "output", {cropped, Join(amounts, Integers({0, 0}, {1, 2}))},
               {{"T", TfType::kFloat}, {"Tpaddings", kInt}});
  }

  std::string ToGray(const std::string& x) {
    const auto& weights = io::kGrayWeights;
    const std::string shares =
        Constant(graph_.AddNumbers("numbers", {weights.begin(), weights.end()}));
    return Reduce("Sum", Binary("Mul", x, shares), {2}, true);
  }

  std::string Standardize(const std::string& x) {
    const auto count = static_cast<float>(steps_.size * steps_.size * steps_.net_channels);
    const std::string centered = Binary("Sub", x, Reduce("Mean", x, {0, 1, 2}, false));
    const std::string variance =
        Reduce("Mean", Binary("Mul", centered, centered), {0, 1, 2}, false);
    const std::string deviation = Add("Sqrt", "y", {variance}, {{"T", TfType::kFloat}});
    return Binary("RealDiv", centered, Binary("Maximum", deviation, Number(1 / std::sqrt(count))));
  }

  std::string Normalize(const std::string& x) {
    const std::string subtract = Constant(graph_.AddNumbers("numbers", steps_.subtract));
    return Binary("Mul", Binary("Sub", x, subtract), Number(steps_.multiply));
  }

  const PreprocessingSteps& steps_;
  const std::string contents_;
  TfGraph graph_;
  std::string sides_;   // height and width of the image
  std::string target_;  // those of the result
};

}  // namespace

TfFunction MakePreprocessingFunction(const PreprocessingSteps& steps,
                                     const std::string& dct_method) {
  TfFunction function{.name = "preprocess", .argument = "contents"};
  ImageNodes nodes(steps, function.argument);
  function.result = nodes.Run(dct_method);
  function.nodes = nodes.graph().nodes();
  return function;
}

}  // namespace carole::exporting
