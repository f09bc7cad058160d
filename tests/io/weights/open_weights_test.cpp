#include "io/weights/open_weights.h"

#include <filesystem>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

TEST(ResolveWeightsPath, AppendsTheSuffixIfOnlyThatFileExists) {
  const TemporaryFolder folder;
  EXPECT_EQ(ResolveWeightsPath(folder / "run"), folder / "run");
  WriteText(folder / "run.h5", "");
  EXPECT_EQ(ResolveWeightsPath(folder / "run"), folder / "run.h5");
  EXPECT_EQ(ResolveWeightsPath(folder / "run.h5"), folder / "run.h5");
  std::filesystem::create_directory(folder / "run");  // an empty folder of another run
  EXPECT_EQ(ResolveWeightsPath(folder / "run"), folder / "run");
  EXPECT_EQ(TryOpenWeights(folder / "run"), nullptr);
}

}  // namespace
}  // namespace carole::io
