// carole dataset build | verify | show, on good and on damaged files.
#include "tests/cli/cli.h"
#include "tests/cli/damage.h"

namespace carole::testing {
namespace {

class DatasetTest : public CliTest {};

Words Verify(const std::string& file) {
  return {"dataset", "verify", "--dataset_name=mnist", file};
}

TEST_F(DatasetTest, VerifyCountsGoodRecords) {
  const ProcessResult result = Carole({"dataset", "verify", "--dataset_name=mnist",
                                       "--dataset_split_name=test", "--dataset_dir", data_dir_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("100 records, all good"), std::string::npos) << result.out;
}

TEST_F(DatasetTest, ShowPrintsTheFieldsOfARecord) {
  const ProcessResult result = Carole({"dataset", "show", train_file_, "--record=7"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("record 7 at byte"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("28x28"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("int64 7\n"), std::string::npos) << result.out;
  EXPECT_TRUE(
      FailsWith(Carole({"dataset", "show", train_file_, "--record=300"}), 64, {"--record", "300"}));
}

TEST_F(DatasetTest, VerifyNamesTheDamage) {
  const std::string good = ReadWholeFile(train_file_);
  FlipBit(train_file_, OffsetOfRecord(good, 3) + 12 + 40);
  EXPECT_TRUE(
      FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "record 3", "crc"}));
  WriteFile(train_file_, good);
  FlipBit(train_file_, OffsetOfRecord(good, 4) + 2);
  EXPECT_TRUE(
      FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "record 4", "crc"}));
  WriteFile(train_file_, good.substr(0, good.size() - 9));
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "record 299"}));
  WriteFile(train_file_, "");
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "empty"}));
}

TEST_F(DatasetTest, MissingRawFilesAreNamed) {
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=mnist", "--raw_dir",
                                folder_ / "nowhere", "--dataset_dir", folder_ / "out"}),
                        65, {"nowhere"}));
}

}  // namespace
}  // namespace carole::testing
