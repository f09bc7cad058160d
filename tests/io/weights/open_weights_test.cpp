#include "io/weights/open_weights.h"

#include <filesystem>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

TEST(WeightsFile, MayBeNamedAsTensorFlowWould) {
  const TemporaryFolder folder;
  EXPECT_EQ(WeightsFile(folder / "run"), folder / "run");
  WriteText(folder / "run.h5", "");
  EXPECT_EQ(WeightsFile(folder / "run"), folder / "run.h5");
  EXPECT_EQ(WeightsFile(folder / "run.h5"), folder / "run.h5");
  std::filesystem::create_directory(folder / "run");  // of another run, and empty
  EXPECT_EQ(WeightsFile(folder / "run"), folder / "run");
  EXPECT_EQ(TryOpenWeights(folder / "run"), nullptr);
}

}  // namespace
}  // namespace carole::io
