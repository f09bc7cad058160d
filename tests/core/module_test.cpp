// Libraries of the program that are missing, do not load or are another version's.
#include "src/core/module.h"

#include <gmock/gmock.h>

#include "src/core/error.h"

namespace carole {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int Call(const char* library, const char* function) {
  return LoadFunction<int()>(
      {.tag = "gpu", .library = library, .without = "it was built without", .needs = "libabsent"},
      function)();
}

TEST(Module, FunctionOfALibraryBesideTheProgram) {
  EXPECT_EQ(Call("libtest_module.so", "FortyTwo"), 42);
}

TEST(Module, SaysWhatIsMissing) {
  EXPECT_THAT([] { Call("libnowhere.so", "FortyTwo"); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("[gpu] libnowhere.so: not found beside the program"),
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
