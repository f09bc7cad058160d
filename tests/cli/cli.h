// Helpers of the end-to-end tests: they run the real program on a small data set of drawn digits.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/records/example.h"
#include "tests/support/subprocess.h"

namespace carole::testing {

using Words = std::vector<std::string>;

inline constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";  // may be missing

// Returns the command line of CAROLE_BINARY with these arguments, under `mpirun -np ranks` if ranks
// > 1.
Words CaroleWords(const Words& arguments, int ranks = 1);
// Runs that command line.
ProcessResult Carole(const Words& arguments, int ranks = 1);

// Runs that command line and expects exit code 0.
ProcessResult RunToEnd(const Words& arguments, int ranks = 1);

// Returns the command line of CaroleWords() with the fault RANK:STEP:POINT:KIND in its rank
// (src/commands/drill/injection.h).
Words WithFault(const std::string& fault, const Words& words);

// Writes drawn digits of 28x28 pixels as IDX files, MNIST's format.
void WriteDigits(const std::filesystem::path& folder, int num_train, int num_test);

// Writes the digits 0, 1, ... as "0.png", "1.png", ...
void WriteDigitImages(const std::filesystem::path& folder, int count);

// Writes a TFRecord file with this record only.
void WriteRecord(const std::string& path, const io::ExampleBuilder& example);

// Writes a TFRecord file with one record of 28x28 raw pixels of this gray.
void WriteGrayRecord(const std::string& path, uint8_t gray, int64_t label);

// A test with TFRecords of 300 training and 100 test digits, which the program itself builds.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // Returns the arguments of a quick run of lenet on the digits. `more` come last, so they win.
  Words TrainWords(const std::string& train_dir, const Words& more = {}) const;
  Words EvalWords(const std::string& checkpoint, const Words& more = {}) const;

  TemporaryFolder folder_;
  std::string data_dir_ = folder_ / "data";
  std::string train_dir_ = folder_ / "run";
  std::string train_file_ = data_dir_ + "/mnist_train.tfrecord";
};

// Returns a command line of two ranks. Rank 0 runs the arguments `first`. Rank 1 runs `second`, a
// shell command in which "$@" stands for rank 0's command line. (Open MPI 5.0.7 dies of a signal if
// mpirun is given two commands with a colon between them.)
Words WithSecondRank(const Words& first, const std::string& second);

// Returns the command with the arguments of env before it: NAME=VALUE, -u NAME.
Words WithEnvironment(const Words& words, const Words& command);

// Succeeds if the run ended with this exit code, the last line on standard error says so, and one
// line has all of `words`.
::testing::AssertionResult FailsWith(const ProcessResult& result, int code, const Words& words);

// Succeeds if a job of several ranks that failed in the same way reports it once, and mpirun adds
// nothing. Open MPI 5 prints a text of its own.
::testing::AssertionResult ReportsOnce(const ProcessResult& result);

// Returns the loss of each step that a training log shows.
std::vector<double> LossesIn(const std::string& log);

// Returns the digest of weights, slots and position of a checkpoint file, or of the newest intact
// checkpoint of a folder.
std::string DigestOf(const std::string& path);

// Returns the running processes whose command line has `text`.
std::vector<pid_t> ProcessesWith(const std::string& text);

// Returns those that are still running after 30 s. (mpirun does not wait for ranks that it killed.)
std::vector<pid_t> ProcessesLeftWith(const std::string& text);

}  // namespace carole::testing
