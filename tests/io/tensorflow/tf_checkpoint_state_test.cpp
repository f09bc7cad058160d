// The file `checkpoint`, as programs and people write it.
#include "io/tensorflow/tf_checkpoint_state.h"

#include <gmock/gmock.h>

#include "src/core/error.h"
#include "tests/support/text_of.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

TEST(CheckpointState, TakesTheFormsOfTheTextFormat) {
  for (const char* text : {
           "model_checkpoint_path: \"m-7\"\nall_model_checkpoint_paths: \"m-1\"\n",
           "all_model_checkpoint_paths: \"m-1\"\nmodel_checkpoint_path: \"m-7\"",
           "model_checkpoint_path: 'm-7'",
           "model_checkpoint_path:\"m-7\"",
           "  model_checkpoint_path :\t\"m-7\"  \r\n",
           "model_checkpoint_path: \"m-7\" all_model_checkpoint_paths: \"m-1\"",
           "model_checkpoint_path: \"m-7\", all_model_checkpoint_paths: \"m-1\";",
           "# by hand: \"m-1\"\nmodel_checkpoint_path: # the best one\n  \"m-7\" # end",
           "model_checkpoint_path: \"m\" '-7'",
           "model_checkpoint_path: \"\\155-\\x37\"",
           "\xef\xbb\xbfmodel_checkpoint_path: \"m-7\"",
           "all_model_checkpoint_paths: [\"m-1\", 'm-7']\nmodel_checkpoint_path: \"m-7\"\n"
           "all_model_checkpoint_timestamps: 1554.25e+6\nlast_preserved_timestamp: -1",
       })
    EXPECT_EQ(ParseCheckpointState(text), "m-7") << text;
  EXPECT_EQ(ParseCheckpointState(R"(model_checkpoint_path: "D:\\runs\\m-7")"), R"(D:\runs\m-7)");
  EXPECT_EQ(ParseCheckpointState(R"(model_checkpoint_path: "it's \"m\"")"), R"(it's "m")");
}

TEST(CheckpointState, RefusesWhatNamesNoCheckpoint) {
  const auto error = [](const std::string& text) {
    return TextOf<DataError>([&] { ParseCheckpointState(text); });
  };
  EXPECT_THAT(error(""), HasSubstr("names no checkpoint: want a line such as"));
  EXPECT_THAT(error("# model_checkpoint_path: \"m\""), HasSubstr("names no checkpoint"));
  EXPECT_THAT(error("model_checkpoint_path: \"\""), HasSubstr("names no checkpoint"));
  EXPECT_THAT(error("all_model_checkpoint_paths: \"m\""), HasSubstr("names no checkpoint"));
  EXPECT_THAT(error("\nmodel_checkpoint_path \"m\""), HasSubstr("line 2: got no colon after"));
  EXPECT_THAT(error("model_checkpoint_path: m-7"), HasSubstr("without quotes"));
  EXPECT_THAT(error("model_checkpoint_path: [\"m-7\"]"), HasSubstr("without quotes"));
  EXPECT_THAT(error("model_checkpoint_path:"), HasSubstr("no value of model_checkpoint_path"));
  EXPECT_THAT(error("model_checkpoint_path: \"m-7"), HasSubstr("a string without an end"));
  EXPECT_THAT(error("model_checkpoint_path: \"m-7\n\""), HasSubstr("a string without an end"));
  EXPECT_THAT(error("model_checkpoint_path: \"m\\"), HasSubstr("a string without an end"));
  EXPECT_THAT(error("model_checkpoint_path: \"D:\\m-7\""),
              HasSubstr("line 1: got an unknown escape in a string (Windows paths need two"));
  EXPECT_THAT(error("model_checkpoint_path: \"\\xz\""), HasSubstr("an escape without digits"));
  EXPECT_THAT(error("all_model_checkpoint_paths: [\"m\""), HasSubstr("a list without an end"));
  EXPECT_THAT(error("model_checkpoint_path: \"m\" model_checkpoint_path: \"n\""),
              HasSubstr("several values"));
  EXPECT_THAT(error("{}"), HasSubstr("line 1: got something else"));
  EXPECT_THAT(error(std::string("m\0o\0", 4)), HasSubstr("got no colon after m"));  // UTF-16
}

}  // namespace
}  // namespace carole::io
