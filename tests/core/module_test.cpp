// Loading the program's own libraries: one that works, and ones that are missing, do not load, or
// belong to another version.
#include "src/core/module.h"

#include <gmock/gmock.h>

#include "src/core/error.h"

namespace carole {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int Call(const char* library, const char* function) {
  return LoadFunction<int()>({.tag = "gpu",
                              .library = library,
                              .if_missing = "it was built without",
                              .dependencies = "libabsent"},
                             function)();
}

TEST(Module, LoadsAFunctionFromALibraryNextToTheProgram) {
  EXPECT_EQ(Call("libtest_module.so", "FortyTwo"), 42);
}

TEST(Module, ErrorsNameWhatIsMissing) {
  EXPECT_THAT([] { Call("libnowhere.so", "FortyTwo"); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("[gpu] libnowhere.so: not found next to the program"),
                        HasSubstr("it was built without"))));
  EXPECT_THAT([] { Call("libtest_module.so", "FortyThree"); },
              ThrowsMessage<ConfigError>(HasSubstr("belongs to another version")));
  EXPECT_THAT([] { Call("libtest_needy.so", "FortyTwo"); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("cannot be loaded"), HasSubstr("libtest_absent.so"),
                        HasSubstr("install libabsent or add its folder to LD_LIBRARY_PATH"))));
}

}  // namespace
}  // namespace carole
