// One test for each golden file and each backend: Golden.<file>_<backend>, or
// Golden.<file>_<backend>_<precision> if the precision is not fp32. At the end comes a table of the
// worst errors.
//
// The files are those of tests/data/goldens. If the environment variable CAROLE_GOLDENS names a
// folder, its files and those of large nets are added. If several folders have a file for a net,
// the one in CAROLE_GOLDENS is used.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tests/golden/check_net.h"
#include "tests/golden/pytorch.h"
#include "tests/support/precision_problem.h"
#include "tests/support/test_data.h"
#include "tests/support/walled_backend.h"

namespace carole::golden {
namespace {

namespace fs = std::filesystem;

const std::string kOwnFolder = TestData() + "/goldens";
const std::string kLargeFolder = TestData() + "/goldens/large";

// Makes the fastest CPU backend of this machine, with memory that the host cannot access.
std::unique_ptr<Backend> MakeDevice(int threads) {
  const auto make = OneDnnAvailable() ? MakeOneDnnBackend : MakeReferenceBackend;
  return std::make_unique<carole::testing::WalledBackend>(make(threads));
}

constexpr BackendEntry kDevice = {
    .name = "device", .make = MakeDevice, .unavailable_reason = [] { return std::string(); }};

struct Column {
  BackendEntry backend;
  Precision precision = Precision::kFp32;

  std::string name() const {
    return precision == Precision::kFp32 ? std::string(backend.name)
                                         : fmt::format("{}_{}", backend.name, Name(precision));
  }
  // The relative rounding error of values that are stored or multiplied in this precision.
  double roundoff() const {
    return precision == Precision::kFp32 ? 0 : precision == Precision::kBf16 ? 0x1p-8 : 0x1p-11;
  }
};
constexpr Column kColumns[] = {
    {kBackends[0]},
    {kBackends[0], Precision::kBf16},
    {kBackends[1]},
    {kBackends[1], Precision::kBf16},
    {kBackends[1], Precision::kFp16},
    {kDevice},
    {kCudaBackend},
    {kCudaBackend, Precision::kTf32},
    {kCudaBackend, Precision::kBf16},
    {kCudaBackend, Precision::kFp16},
};

std::vector<std::string>& Rows() {
  static std::vector<std::string> rows;
  return rows;
}

class PrintTable : public ::testing::Environment {
 public:
  explicit PrintTable(std::string without) : without_(std::move(without)) {}

  void TearDown() override {
    if (Rows().empty()) return;
    fmt::print(
        "\nWorst errors (in double: relative to the f64 values; in fp32: relative to each "
        "quantity's scale)\n{}\n",
        Report::Header());
    for (const std::string& row : Rows()) fmt::print("{}\n", row);
    if (!without_.empty()) fmt::print("no golden file: {}\n", without_);
    std::fflush(stdout);
  }

 private:
  const std::string without_;  // the nets that have no file
};

class GoldenTest : public ::testing::Test {
 public:
  GoldenTest(fs::path file, const Column& column) : file_(std::move(file)), column_(column) {}

  void TestBody() override {
    std::ifstream stream(file_);
    nlohmann::json golden = nlohmann::json::parse(stream);
    TranslatePyTorch(golden);
    const std::string name = golden.value("net", "");
    if (name.empty()) FAIL() << file_ << ": not a golden file: \"net\" is missing";
    const nets::NetEntry* net = nets::TryFindNet(name);
    if (net == nullptr) GTEST_SKIP() << "skipped: net " << name << " is not in this build";
    const BackendEntry& entry = column_.backend;
    if (const std::string problem = entry.unavailable_reason(); !problem.empty())
      GTEST_SKIP() << "skipped: " << problem;
    const auto backend = entry.make(static_cast<int>(std::thread::hardware_concurrency()));
    if (const auto problem = carole::testing::PrecisionProblem(column_.precision, *backend);
        !problem.empty())
      GTEST_SKIP() << "skipped: " << problem;
    CheckStructure(*net, golden);
    if (HasFatalFailure()) return;
    const bool is_fp32 = column_.name() != "reference" || !HasDoubles(golden);
    // A net without doubles is large. So even the reference backend uses fp32, which needs half the
    // memory.
    if (!HasDoubles(golden)) {
      const char* record = std::getenv("CAROLE_RECORD_DOUBLES");
      if (record != nullptr && column_.name() == "reference")
        RecordDoubles(*net, golden, *backend, record);
      UseFp32AsDoubles(golden);
      AddOwnDoubles(golden, TestData() + "/doubles");
    }
    Report report(name, column_.name(), is_fp32, column_.roundoff());
    CheckNumbers(*net, golden, *backend, is_fp32 ? DType::kF32 : DType::kF64, report);
    Rows().push_back(report.Row());
  }

 private:
  fs::path file_;
  const Column& column_;
};

using Files = std::map<std::string, fs::path>;  // by name without extension

void AddFiles(const fs::path& folder, Files& files) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".json") files.try_emplace(path.stem().string(), path);
  }
}

std::string NetsWithout(const Files& files) {
  std::string names;
  for (const nets::NetEntry& net : nets::kNets) {
    if (files.count(std::string(net.name)) > 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(net.name);
  }
  return names;
}

// Returns the golden files. If the folder in CAROLE_GOLDENS has none, prints that and returns none.
Files FindFiles() {
  Files files;
  if (const char* chosen = std::getenv("CAROLE_GOLDENS")) {
    AddFiles(chosen, files);
    if (files.empty()) {
      fmt::print(stderr, "[golden] CAROLE_GOLDENS={}: no *.json files in this folder\n", chosen);
      return files;
    }
    AddFiles(kLargeFolder, files);
  }
  AddFiles(kOwnFolder, files);
  return files;
}

void Register([[maybe_unused]] const std::string& name, [[maybe_unused]] const fs::path& file) {
#ifndef __clang_analyzer__  // it reports a leak, although gtest owns the tests
  for (const Column& column : kColumns) {
    ::testing::RegisterTest(
        "Golden", fmt::format("{}_{}", name, column.name()).c_str(), nullptr, nullptr, __FILE__,
        __LINE__, [file, &column]() -> ::testing::Test* { return new GoldenTest(file, column); });
  }
#endif
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const Files files = FindFiles();
  if (files.empty()) return EXIT_FAILURE;
  for (const auto& [name, file] : files) Register(name, file);
  ::testing::AddGlobalTestEnvironment(new PrintTable(NetsWithout(files)));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace carole::golden

int main(int argc, char** argv) { return carole::golden::Main(argc, argv); }
