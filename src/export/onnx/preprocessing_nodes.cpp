#include "src/export/onnx/preprocessing_nodes.h"

#include <cmath>

namespace carole::exporting {
namespace {

constexpr const char* kScope = "preprocessing/";

class ImageNodes {
 public:
  ImageNodes(const PreprocessingSteps& steps, OnnxGraph& graph) : steps_(steps), graph_(graph) {}

  std::string Run(const std::string& image) {
    const std::string floats =
        Add("Cast", {image}, {{"to", static_cast<int64_t>(OnnxType::kFloat)}});
    std::string x = Add("Transpose", {floats}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
    sides_ = Add("Shape", {image}, {{"start", int64_t{1}}, {"end", int64_t{3}}});
    target_ = graph_.Integers({steps_.size, steps_.size});
    zero_ = graph_.Integers({0, 0});
    x = Fit(x);
    if (steps_.image_channels == 3 && steps_.net_channels == 1) x = ToGray(x);
    return steps_.standardizes ? Standardize(x) : Normalize(x);
  }

 private:
  std::string Add(const std::string& operation, const std::vector<std::string>& inputs,
                  const OnnxAttributes& attributes = {}) {
    return graph_.Add(operation, kScope + operation, inputs, attributes);
  }

  std::string Fit(const std::string& x) {
    switch (steps_.geometry) {
      case Geometry::kCentralPart: {
        // A sixteenth, rounded down, is left out on each side.
        const std::string start = Add("Div", {sides_, graph_.Integers({16, 16})});
        return Resize(Slice(x, start, Add("Sub", {sides_, start})), target_);
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

  std::string Slice(const std::string& x, const std::string& start, const std::string& end) {
    return Add("Slice", {x, start, end, graph_.Integers({2, 3})});
  }

  // The same sampling points as TensorFlow's resize_bilinear without align_corners.
  std::string Resize(const std::string& x, const std::string& sides) {
    const std::string outer = Add("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{2}}});
    const std::string sizes = Add("Concat", {outer, sides}, {{"axis", int64_t{0}}});
    return Add("Resize", {x, "", "", sizes},
               {{"mode", std::string("linear")},
                {"coordinate_transformation_mode", std::string("asymmetric")}});
  }

  std::string ResizeAndCrop(const std::string& x) {
    const std::string sides =
        Add("Cast", {sides_}, {{"to", static_cast<int64_t>(OnnxType::kFloat)}});
    const std::string shorter = Add("ReduceMin", {sides});
    const std::string factor = Add("Div", {graph_.Number(io::kEvaluationShorterSide), shorter});
    const std::string scaled = Add("Mul", {sides, factor});
    const std::string whole = Add(steps_.truncates_sides ? "Floor" : "Round", {scaled});
    const std::string new_sides =
        Add("Cast", {whole}, {{"to", static_cast<int64_t>(OnnxType::kInt64)}});
    const std::string start =
        Add("Div", {Add("Sub", {new_sides, target_}), graph_.Integers({2, 2})});
    return Slice(Resize(x, new_sides), start, Add("Add", {start, target_}));
  }

  std::string CropOrPad(const std::string& x) {
    const std::string two = graph_.Integers({2, 2});
    const std::string too_many = Add("Max", {Add("Sub", {sides_, target_}), zero_});
    const std::string start = Add("Div", {too_many, two});
    const std::string cropped = Slice(x, start, Add("Add", {start, target_}));
    const std::string missing = Add("Max", {Add("Sub", {target_, sides_}), zero_});
    const std::string before = Add("Div", {missing, two});
    const std::string after = Add("Sub", {missing, before});
    return Add("Pad",
               {cropped, Add("Concat", {zero_, before, zero_, after}, {{"axis", int64_t{0}}})});
  }

  std::string Sum(const std::string& x, std::initializer_list<int64_t> axes) {
    return Add("ReduceSum", {x, graph_.Integers(axes)});
  }

  std::string ToGray(const std::string& x) {
    const auto& weights = io::kGrayWeights;
    const std::string shares =
        graph_.Numbers({1, std::ssize(weights), 1, 1}, {weights.begin(), weights.end()});
    return Sum(Add("Mul", {x, shares}), {1});
  }

  std::string Standardize(const std::string& x) {
    const auto count = static_cast<float>(steps_.size * steps_.size * steps_.net_channels);
    const std::string number = graph_.Number(count);
    const std::string mean = Add("Div", {Sum(x, {1, 2, 3}), number});
    const std::string centered = Add("Sub", {x, mean});
    const std::string squares = Sum(Add("Mul", {centered, centered}), {1, 2, 3});
    const std::string deviation = Add("Sqrt", {Add("Div", {squares, number})});
    return Add("Div", {centered, Add("Max", {deviation, graph_.Number(1 / std::sqrt(count))})});
  }

  std::string Normalize(const std::string& x) {
    const std::string subtract =
        graph_.Numbers({1, std::ssize(steps_.subtract), 1, 1}, steps_.subtract);
    return Add("Mul", {Add("Sub", {x, subtract}), graph_.Number(steps_.multiply)});
  }

  const PreprocessingSteps& steps_;
  OnnxGraph& graph_;
  std::string sides_;   // height and width of the image
  std::string target_;  // those of the result
  std::string zero_;
};

}  // namespace

std::string AddPreprocessing(const PreprocessingSteps& steps, const std::string& image,
                             OnnxGraph& graph) {
  return ImageNodes(steps, graph).Run(image);
}

}  // namespace carole::exporting
