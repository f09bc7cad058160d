// What the end-to-end tests share: the real program, and a small data set of drawn digits.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/records/example.h"
#include "tests/support/subprocess.h"

namespace carole::testing {

using Words = std::vector<std::string>;

// CAROLE_BINARY with these arguments; under `mpirun -np ranks` when ranks > 1.
Words CaroleWords(const Words& arguments, int ranks = 1);
ProcessResult Carole(const Words& arguments, int ranks = 1);

// The same; expects exit code 0.
ProcessResult RunToEnd(const Words& arguments, int ranks = 1);

// With CAROLE_TEST_FAULT in the environment: RANK:STEP:PHASE:KIND (src/train/step/phase.h).
Words WithFault(const std::string& fault, const Words& words);

// IDX files of drawn digits, 28x28: MNIST's form.
void WriteDigits(const std::filesystem::path& folder, int num_train, int num_test);

// The digits 0, 1, … as PNG: "0.png", "1.png".
void WriteDigitPictures(const std::filesystem::path& folder, int count);

// A TFRecord file of this record alone.
void WriteRecord(const std::string& path, const io::ExampleBuilder& example);

// The same of 28x28 bare pixels of one gray.
void WriteGrayRecord(const std::string& path, uint8_t gray, int64_t label);

// TFRecords of 300 + 100 digits, built by the program itself.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // Flags of a quick run of lenet on the digits; `more` come last and win.
  Words TrainWords(const std::string& train_dir, const Words& more = {}) const;
  Words EvalWords(const std::string& checkpoint, const Words& more = {}) const;

  TemporaryFolder folder_;
  std::string data_dir_ = folder_ / "data";
  std::string train_dir_ = folder_ / "run";
  std::string train_file_ = data_dir_ + "/mnist_train.tfrecord";
};

// Of two ranks, of which the second's command is `second`: words of the shell around "$@", the
// first's. (mpirun's own way, a colon, ends Open MPI 5.0.7 by a signal.)
Words WithSecondRank(const Words& first, const std::string& second);

// A command with env's words before it: NAME=VALUE, -u NAME.
Words WithEnvironment(const Words& words, const Words& command);

// The exit code, the last line that says it, and a line with all of `words`.
::testing::AssertionResult FailsWith(const ProcessResult& result, int code, const Words& words);

// Of each step that a log of training has.
std::vector<double> LossesIn(const std::string& log);

// The digest of weights, slots and place of a folder's newest good checkpoint, or of a file.
std::string DigestOf(const std::string& path);

// Numbers of the running processes whose command line holds `text`.
std::vector<pid_t> ProcessesWith(const std::string& text);

// Those that do not end in 30 s: mpirun does not wait for the ranks that it killed.
std::vector<pid_t> ProcessesLeftWith(const std::string& text);

}  // namespace carole::testing
