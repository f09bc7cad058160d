// One test for each golden file of a folder and each backend: Golden.<net>_<backend>. The folder is
// that of the environment variable CAROLE_GOLDENS, or tests/data/goldens. A table of the worst
// errors follows the last test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/golden/check_net.h"

namespace carole::golden {
namespace {

namespace fs = std::filesystem;

std::vector<std::string>& Rows() {
  static std::vector<std::string> rows;
  return rows;
}

class PrintTable : public testing::Environment {
 public:
  void TearDown() override {
    if (Rows().empty()) return;
    fmt::print(
        "\nWorst errors (in double: relative to the f64 values; in fp32: relative to each "
        "quantity's scale)\n{}\n",
        Report::Header());
    for (const std::string& row : Rows()) fmt::print("{}\n", row);
    std::fflush(stdout);
  }
};

class GoldenTest : public testing::Test {
 public:
  GoldenTest(fs::path file, const BackendEntry& backend)
      : file_(std::move(file)), backend_(backend) {}

  void TestBody() override {
    std::ifstream stream(file_);
    nlohmann::json golden = nlohmann::json::parse(stream);
    const std::string name = golden.value("net", "");
    if (name.empty()) FAIL() << file_ << ": this is no golden file: it names no net";
    const nets::NetEntry* net = nets::TryFindNet(name);
    if (net == nullptr) GTEST_SKIP() << "skipped: net " << name << " is not in this build";
    if (backend_.name == "onednn" && !OneDnnAvailable()) {
      GTEST_SKIP() << "skipped: this build has no oneDNN";
    }
    CheckStructure(*net, golden);
    if (HasFatalFailure()) return;
    const bool single = backend_.name != "reference" || !HasDoubles(golden);
    const auto backend = backend_.make(static_cast<int>(std::thread::hardware_concurrency()));
    // Such a net is large: fp32 on the reference backend too takes half the memory.
    if (!HasDoubles(golden)) {
      const char* record = std::getenv("CAROLE_RECORD_DOUBLES");
      if (record != nullptr && backend_.name == "reference")
        RecordDoubles(*net, golden, *backend, record);
      TakeSinglesForDoubles(golden);
      AddOwnDoubles(golden, CAROLE_TEST_DATA "/doubles");
    }
    Report report(name, std::string(backend_.name), single);
    CheckNumbers(*net, golden, *backend, single ? DType::kF32 : DType::kF64, report);
    Rows().push_back(report.Row());
  }

 private:
  fs::path file_;
  const BackendEntry& backend_;
};

std::vector<fs::path> GoldenFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* chosen = std::getenv("CAROLE_GOLDENS");
  const fs::path folder = chosen == nullptr ? CAROLE_TEST_DATA "/goldens" : chosen;
  const std::vector<fs::path> files = GoldenFiles(folder);
  if (files.empty()) {
    fmt::print(stderr,
               "[golden] {}: no *.json is here: want a folder of golden files; set "
               "CAROLE_GOLDENS\n",
               folder.string());
    return EXIT_FAILURE;
  }
  for (const fs::path& file : files) {
    for (const BackendEntry& backend : kBackends) {
      const std::string name = fmt::format("{}_{}", file.stem().string(), backend.name);
      testing::RegisterTest(
          "Golden", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
          [file, &backend]() -> testing::Test* { return new GoldenTest(file, backend); });
    }
  }
  testing::AddGlobalTestEnvironment(new PrintTable);
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace carole::golden

int main(int argc, char** argv) { return carole::golden::Main(argc, argv); }
