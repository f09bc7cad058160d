#include "tests/cli/cli.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "io/image/image.h"
#include "io/records/tfrecord.h"
#include "src/core/files/disk.h"

namespace carole::testing {
namespace {

void WriteBigEndian(std::ofstream& file, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(value >> shift));
}

// The lit segments of each digit on a seven-segment display: clockwise from the top, the middle one
// last.
constexpr std::array<const char*, 10> kSegments = {"1111110", "0110000", "1101101", "1111001",
                                                   "0110011", "1011011", "1011111", "1110000",
                                                   "1111111", "1111011"};
struct Box {
  int row, column, height, width;
};
constexpr std::array<Box, 7> kBoxes = {{{0, 0, 2, 10},
                                        {0, 8, 9, 2},
                                        {8, 8, 9, 2},
                                        {15, 0, 2, 10},
                                        {8, 0, 9, 2},
                                        {0, 0, 9, 2},
                                        {7, 0, 2, 10}}};

std::string DrawDigit(int digit, std::mt19937& random) {
  std::string pixels(28 * 28, '\0');
  const int top = static_cast<int>(random() % 10), left = static_cast<int>(random() % 17);
  for (size_t s = 0; s < kBoxes.size(); ++s) {
    if (kSegments[digit][s] == '0') continue;
    const Box& box = kBoxes[s];
    for (int r = 0; r < box.height; ++r) {
      for (int c = 0; c < box.width; ++c)
        pixels[(top + box.row + r) * 28 + left + box.column + c] =
            static_cast<char>(200 + random() % 56);
    }
  }
  return pixels;
}

void WriteSplit(const std::filesystem::path& folder, const std::string& stem, int count,
                uint32_t seed) {
  std::ofstream images(folder / (stem + "-images-idx3-ubyte"), std::ios::binary);
  std::ofstream labels(folder / (stem + "-labels-idx1-ubyte"), std::ios::binary);
  for (uint32_t value : {0x803U, static_cast<uint32_t>(count), 28U, 28U})
    WriteBigEndian(images, value);
  for (uint32_t value : {0x801U, static_cast<uint32_t>(count)}) WriteBigEndian(labels, value);
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    images << DrawDigit(i % 10, random);
    labels.put(static_cast<char>(i % 10));
  }
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

}  // namespace

Words CaroleWords(const Words& arguments, int ranks) {
  Words words{CAROLE_BINARY};
  if (ranks > 1) {
    words = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
             "-np",    std::to_string(ranks), CAROLE_BINARY};
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

ProcessResult Carole(const Words& arguments, int ranks) {
  return RunProcess(CaroleWords(arguments, ranks));
}

ProcessResult RunToEnd(const Words& arguments, int ranks) {
  ProcessResult result = Carole(arguments, ranks);
  EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(arguments) << "\n" << result.err;
  return result;
}

Words WithSecondRank(const Words& first, const std::string& second) {
  Words words = CaroleWords(first, 2);
  const Words shell{"sh", "-c", R"([ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@"; exec )" + second,
                    "sh"};
  words.insert(std::find(words.begin(), words.end(), CAROLE_BINARY), shell.begin(), shell.end());
  return words;
}

Words WithEnvironment(const Words& words, const Words& command) {
  Words all{"env"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Words WithFault(const std::string& fault, const Words& words) {
  Words all = words;
  all.insert(std::find(all.begin(), all.end(), CAROLE_BINARY) + 1,
             {"drill", "--inject=" + fault, "--"});
  return all;
}

void WriteDigits(const std::filesystem::path& folder, int num_train, int num_test) {
  std::filesystem::create_directories(folder);
  WriteSplit(folder, "train", num_train, 1);
  WriteSplit(folder, "t10k", num_test, 2);
}

void WriteDigitImages(const std::filesystem::path& folder, int count) {
  std::filesystem::create_directories(folder);
  std::mt19937 random(3);
  for (int i = 0; i < count; ++i) {
    const std::string pixels = DrawDigit(i % 10, random);
    std::ofstream file(folder / (std::to_string(i) + ".png"), std::ios::binary);
    file << io::EncodePng({.pixels = reinterpret_cast<const uint8_t*>(pixels.data()),
                           .height = 28,
                           .width = 28,
                           .channels = 1});
  }
}

void WriteRecord(const std::string& path, const io::ExampleBuilder& example) {
  std::string record;
  io::AppendRecord(record, example.Finish());
  WriteWholeFile(path, record);
}

void WriteGrayRecord(const std::string& path, uint8_t gray, int64_t label) {
  io::ExampleBuilder example;
  example.Add("image/encoded", std::string(28 * 28, static_cast<char>(gray)));
  example.Add("image/format", "raw");
  example.Add("image/height", int64_t{28});
  example.Add("image/width", int64_t{28});
  example.Add("image/class/label", label);
  WriteRecord(path, example);
}

void CliTest::SetUp() {
  WriteDigits(folder_ / "raw", 300, 100);
  RunToEnd({"dataset", "build", "--dataset_name=mnist", "--raw_dir", folder_ / "raw",
            "--dataset_dir", data_dir_});
}

Words CliTest::TrainWords(const std::string& train_dir, const Words& more) const {
  Words words{"train",
              "--dataset_name=mnist",
              "--dataset_dir=" + data_dir_,
              "--train_dir=" + train_dir,
              "--model_name=lenet",
              "--batch_size=8",
              "--optimizer=momentum",
              "--learning_rate=0.01",
              "--learning_rate_decay_type=fixed",
              "--max_number_of_steps=12",
              "--log_every_n_steps=4",
              "--threads=1",
              "--num_preprocessing_threads=1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words CliTest::EvalWords(const std::string& checkpoint, const Words& more) const {
  Words words{"eval",
              "--dataset_name=mnist",
              "--dataset_dir=" + data_dir_,
              "--checkpoint_path=" + checkpoint,
              "--model_name=lenet",
              "--batch_size=16",
              "--threads=1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

::testing::AssertionResult FailsWith(const ProcessResult& result, int code, const Words& words) {
  const std::string end = "\ncarole: exit " + std::to_string(code) + " (";
  std::istringstream lines(result.err);
  bool named = false;
  for (std::string line; std::getline(lines, line);) {
    named |= std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return line.find(word) != std::string::npos;
    });
  }
  if (result.exit_code == code && named && result.err.find(end) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "exit code " << result.exit_code << ", want " << code << " and a line with "
         << ::testing::PrintToString(words) << "; standard error:\n"
         << result.err;
}

::testing::AssertionResult ReportsOnce(const ProcessResult& result) {
  constexpr std::string_view kExit = "carole: exit ";
  size_t count = 0;
  for (size_t at = result.err.find(kExit); at != std::string::npos;
       at = result.err.find(kExit, at + 1))
    ++count;
  const bool is_last =
      LastLine(result.err).starts_with(kExit) ||
      RunProcess({"mpirun", "--version"}, 30).out.find("(Open MPI) 5") != std::string::npos;
  if (count == 1 && is_last) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "want one exit line, and nothing after it:\n"
                                       << result.err;
}

std::vector<double> LossesIn(const std::string& log) {
  constexpr std::string_view kStart = ": loss = ";
  std::vector<double> losses;
  for (size_t at = log.find(kStart); at != std::string::npos; at = log.find(kStart, at + 1))
    losses.push_back(std::stod(log.substr(at + kStart.size())));
  return losses;
}

std::string DigestOf(const std::string& path) {
  const ProcessResult result = Carole({"checkpoint", "inspect", "--json", path});
  if (result.exit_code != 0) return "no checkpoint in " + path + ": " + LastLine(result.err);
  return nlohmann::json::parse(result.out)["state_digest"];
}

std::vector<pid_t> ProcessesWith(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = ReadText(entry.path() / "cmdline");
    if (command.starts_with(CAROLE_BINARY) && command.find(text) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<pid_t> ProcessesLeftWith(const std::string& text) {
  std::vector<pid_t> left = ProcessesWith(text);
  for (int i = 0; i < 300 && !left.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    left = ProcessesWith(text);
  }
  return left;
}

}  // namespace carole::testing
