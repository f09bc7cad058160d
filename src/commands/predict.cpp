// carole predict: classifies image files with a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <numeric>

#include "io/checkpoint/checkpoint.h"
#include "io/datasets/datasets.h"
#include "io/image/exif.h"
#include "io/image/image.h"
#include "io/image/lazy_image.h"
#include "io/preprocessing/preprocessing.h"
#include "io/weights/open_weights.h"
#include "nets/nets.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/flags/flags.h"
#include "src/commands/setup/checkpoint_net.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/quote_for_shell.h"
#include "src/train/evaluation/inference.h"
#include "src/train/state/moving_statistics.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

struct PredictFlags : CheckpointNet {
  std::vector<std::string> images;
  int64_t batch_size = 32;
  int top = 5;
  bool json = false;
  bool apply_exif_orientation = false;
  MachineConfig machine;
};

void AddFlags(CommandLine& line, PredictFlags& flags) {
  line.AddPositionalPath("IMAGE", flags.images, "JPEG or PNG files, or folders of them.")
      .Required();
  AddCheckpointFlags(line, flags.checkpoint);
  AddNetFlags(line, flags.net, "eval_image_size");
  line.AddNonNegative("num_classes", flags.net.model.num_classes,
                      "Number of classes of the net; 0: the checkpoint's or the net's number.",
                      HelpLevel::kBasic);
  line.Group("Data");
  line.Add("dataset_name", flags.data.dataset_name, "Data set whose class names are shown.",
           HelpLevel::kBasic);
  line.AddPath("dataset_dir,data_dir", flags.data.pipeline.dataset_dir,
               "Folder with the labels.txt of --dataset_name, if it has one.", HelpLevel::kBasic);
  AddPixelFlags(line, flags.data);
  line.Add("apply_exif_orientation", flags.apply_exif_orientation,
           "Turn photos upright as their EXIF data say, for nets that were trained on photos that "
           "dataset build turned.");
  line.Group("Output");
  line.AddPositive("top", flags.top, "Number of classes shown per image, the most likely ones.",
                   HelpLevel::kBasic);
  line.Add("json", flags.json, "Print a line of JSON per image.", HelpLevel::kBasic);
  line.AddPositive("batch_size", flags.batch_size, "Images that are classified at a time.");
  AddMachineFlags(line, flags.machine);
}

// Returns the given files, and the images in the given folders, sorted by name within a folder.
std::vector<fs::path> FindImages(const std::vector<std::string>& arguments) {
  std::vector<fs::path> images;
  for (const std::string& argument : arguments) {
    if (!fs::is_directory(argument)) {
      images.emplace_back(argument);
      continue;
    }
    std::vector<fs::path> found;
    try {
      for (const auto& entry : fs::recursive_directory_iterator(argument)) {
        if (!entry.is_directory() && io::HasImageName(entry.path())) found.push_back(entry.path());
      }
    } catch (const fs::filesystem_error& error) {
      throw DiskError(
          fmt::format("[predict] {}: cannot be read: {}", argument, error.code().message()));
    }
    std::sort(found.begin(), found.end());
    images.insert(images.end(), found.begin(), found.end());
  }
  return images;
}

// The preprocessed pixels of consecutive images.
struct Pixels {
  size_t first = 0;                 // index of the first image
  std::vector<float> values;        // (batch, H, W, C)
  std::vector<std::string> errors;  // per image; empty if it could be read
};

class ImageReader {
 public:
  ImageReader(const PredictFlags& flags, const nets::NetEntry& net, int threads)
      : preprocess_(io::FindPreprocessing(PreprocessingOf(net, flags.data.preprocessing_name))),
        size_(static_cast<int>(flags.net.model.image_size)),
        channels_(static_cast<int>(flags.net.model.channels)),
        decoding_{.channels = DecodedChannels(flags),
                  .dct_method = flags.data.pipeline.dct_method,
                  .scaling = flags.data.pipeline.dct_scaling},
        apply_exif_orientation_(flags.apply_exif_orientation),
        threads_(threads) {
    io::CheckPreprocessingSize(preprocess_, size_, size_);
  }

  Pixels Read(const std::vector<fs::path>& images, size_t first, size_t batch) const {
    const size_t count = std::min(batch, images.size() - first);
    const size_t pixels = static_cast<size_t>(size_) * size_ * channels_;
    Pixels read{.first = first};
    read.values.resize(batch * pixels);
    read.errors.resize(count);
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (size_t i = 0; i < count; ++i) {
      try {
        ReadOne(images[first + i], std::span(read.values).subspan(i * pixels, pixels));
      } catch (const std::exception& error) {  // no exception may leave an OpenMP loop
        read.errors[i] = error.what();
      }
    }
    return read;
  }

 private:
  void ReadOne(const fs::path& path, std::span<float> out) const {
    constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
    const std::string bytes = ReadAll(*OpenFile(path), kMaxFileBytes);
    io::LazyImage image;
    io::Image turned;
    const int orientation = apply_exif_orientation_ ? io::ExifOrientation(bytes) : 1;
    if (orientation == 1) {
      image.Open(bytes, decoding_);
    } else {
      io::Image stored;
      io::DecodeImage(bytes, decoding_.channels, &stored);
      turned = io::TurnUpright(stored.view(), orientation);
      image.Open(turned.view());
    }
    io::Preprocess(preprocess_, preprocess_.eval,
                   {.image = image, .height = size_, .width = size_, .out = out});
  }

  const io::PreprocessingEntry& preprocess_;
  const int size_, channels_;
  const io::JpegOptions decoding_;  // the same as in training
  const bool apply_exif_orientation_;
  const int threads_;
};

void Softmax(std::span<double> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  for (double& x : row) x = std::exp(x - largest);
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& x : row) x /= sum;
}

class Printer {
 public:
  Printer(const PredictFlags& flags, std::vector<std::string> names)
      : flags_(flags), names_(std::move(names)) {}

  void Print(const fs::path& image, std::span<const double> probabilities) const {
    std::vector<int64_t> order(probabilities.size());
    std::iota(order.begin(), order.end(), 0);
    const auto top = order.begin() + std::min<std::ptrdiff_t>(
                                         flags_.top, static_cast<std::ptrdiff_t>(order.size()));
    std::partial_sort(order.begin(), top, order.end(), [&](int64_t a, int64_t b) {
      return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
    });
    order.erase(top, order.end());
    flags_.json ? PrintJson(image, probabilities, order) : PrintText(image, probabilities, order);
  }

 private:
  void PrintText(const fs::path& image, std::span<const double> probabilities,
                 const std::vector<int64_t>& order) const {
    fmt::print("{}\n", image.string());
    for (int64_t k : order) fmt::print("  {:.4f}  {}\n", probabilities[k], names_[k]);
  }

  void PrintJson(const fs::path& image, std::span<const double> probabilities,
                 const std::vector<int64_t>& order) const {
    nlohmann::ordered_json json{{"image", image.string()},
                                {"predictions", nlohmann::ordered_json::array()}};
    for (int64_t k : order) {
      json["predictions"].push_back(
          {{"class", k}, {"name", names_[k]}, {"probability", probabilities[k]}});
    }
    PrintJsonLine(json);
  }

  const PredictFlags& flags_;
  const std::vector<std::string> names_;
};

// Classifies all images; reads the next batch while the net computes. Returns the number of images
// that could not be read.
int64_t PredictAll(const PredictFlags& flags, const std::vector<fs::path>& images,
                   const ImageReader& reader, train::Inference& net, const Printer& printer) {
  const auto batch = static_cast<size_t>(flags.batch_size);
  const auto classes = static_cast<size_t>(net.num_classes());
  int64_t bad = 0;
  auto start = [&](size_t first) {
    return std::async(std::launch::async, [&, first] { return reader.Read(images, first, batch); });
  };
  auto next = start(0);
  for (size_t first = 0; first < images.size(); first += batch) {
    const Pixels pixels = next.get();
    if (first + batch < images.size()) next = start(first + batch);
    std::vector<double> values = net.Run(pixels.values, flags.batch_size);
    for (size_t i = 0; i < pixels.errors.size(); ++i) {
      if (pixels.errors[i].empty()) {
        const std::span<double> row = std::span(values).subspan(i * classes, classes);
        Softmax(row);
        printer.Print(images[first + i], row);
      } else {
        ++bad;
        const std::string name = images[first + i].string();
        const std::string_view text = WithoutTag(pixels.errors[i]);
        LogError("predict", "{}{}", text.starts_with(name) ? "" : name + ": ", text);
      }
    }
  }
  return bad;
}

// Reads the weights. If the net has other classes than the file, the error names the flag that says
// their number.
void ReadWeights(const PredictFlags& flags, const io::WeightsSource& weights,
                 train::Inference& inference) try {
  train::ReadVariables(weights, ChooseWeightsKind(flags.checkpoint.moving_average_decay),
                       inference.store());
} catch (const train::MisfitError& error) {
  throw DataError(
      fmt::format("{}; the net was built for {} classes: --num_classes or "
                  "--dataset_dir gives another number",
                  error.what(), inference.num_classes()));
}

int Run(PredictFlags& flags, RankContext& context) {
  const auto weights = io::OpenWeights(flags.checkpoint.path);
  const train::RunMetadata run = ReadRunMetadata(*weights);
  FillFromCheckpoint("predict", run, flags);
  const nets::NetEntry& net = nets::FindNet(flags.net.model_name);
  FillSizes(net, flags);
  nets::ModelOptions& options = flags.net.model;
  const std::vector<fs::path> images = FindImages(flags.images);
  if (images.empty())
    throw UsageError(fmt::format("[predict] {}: no images found: want {} files",
                                 JoinTexts(flags.images), JoinTexts(io::kImageExtensions)));
  flags.batch_size = std::min<int64_t>(flags.batch_size, static_cast<int64_t>(images.size()));
  const ImageReader reader(flags, net, context.backend().threads());
  options.batch_size = flags.batch_size;
  nets::Model model = nets::BuildModel(net, options);
  const double statistics_decay = train::StatisticsDecay(*model.graph);
  train::Inference inference(std::move(model.graph), model.logits, context.backend());
  ReadWeights(flags, *weights, inference);
  LogInfo("predict", "{}, step {}: {}, images {}x{}x{}, {} classes", weights->path(),
          weights->step().value_or(0), net.name, options.image_size, options.image_size,
          options.channels, inference.num_classes());
  const Printer printer(flags, ClassNamesOf(flags, inference.num_classes()));
  const int64_t bad = PredictAll(flags, images, reader, inference, printer);
  FlushStdout();
  WarnOfYoungStatistics("predict", run, statistics_decay, weights->step().value_or(0));
  LogInfo("predict", "next: carole checkpoint inspect {}", QuoteForShell(flags.checkpoint.path));
  if (bad == 0) return 0;
  throw DataError(fmt::format("[predict] {} of {} images could not be read", bad, images.size()));
}

}  // namespace

int Predict(const Arguments& arguments) {
  PredictFlags flags;
  CommandLine line("carole predict", "Prints the most likely classes of images.",
                   {"carole predict --checkpoint_path=RUN photo.jpg",
                    "carole predict --checkpoint_path=RUN --top=1 --json PHOTOS"});
  AddFlags(line, flags);
  if (!line.Parse(arguments)) return 0;
  ResolveCheckpoint(line, flags.checkpoint);
  return RunAsRank(flags.machine, [&](RankContext& context) { return Run(flags, context); });
}

}  // namespace carole::commands
