// carole help, --help and --helpfull: complete, short, and regular enough to generate man pages and
// shell completion from. src/commands/cli/help_format.h defines the format.
#include <algorithm>
#include <regex>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Words SplitLines(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Words SplitWords(const std::string& text) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Returns the words of each command that `carole help` lists: {"train"}, {"dataset", "build"}, ...
std::vector<Words> ListCommands() {
  std::vector<Words> commands;
  const std::regex command("  ([a-z]+(?: [a-z]+)?)  +(.*)");
  std::smatch match;
  for (const std::string& line : SplitLines(RunToEnd({"help"}).out)) {
    if (std::regex_match(line, match, command)) commands.push_back(SplitWords(match[1]));
  }
  return commands;
}

std::string RunHelp(Words command, const std::string& flag) {
  command.push_back(flag);
  return RunToEnd(command).out;
}

// One flag of a help page: "  --threads INT[0..4096]  Compute threads ...".
struct FlagEntry {
  std::string names, type, text;
};

std::vector<FlagEntry> ParseFlags(const std::string& page) {
  std::vector<FlagEntry> flags;
  const std::regex first("  (--[^ ]+)(?: ([^ ]+))?  +(.*)"), next(" {36}([^ ].*)");
  std::smatch match;
  for (const std::string& line : SplitLines(page)) {
    if (std::regex_match(line, match, first)) {
      flags.push_back({match[1], match[2], match[3]});
    } else if (!flags.empty() && std::regex_match(line, match, next)) {
      flags.back().text += " " + match[1].str();
    }
  }
  return flags;
}

// Returns the flag with this name, or an empty entry.
FlagEntry FindFlag(const std::string& page, const std::string& name) {
  for (const FlagEntry& flag : ParseFlags(page)) {
    if (("," + flag.names + ",").find("," + name + ",") != std::string::npos) return flag;
  }
  return {};
}

class HelpTest : public ::testing::Test {
 protected:
  const std::vector<Words> commands_ = ListCommands();
};

TEST_F(HelpTest, ListsEveryCommandInOneLine) {
  ASSERT_GE(commands_.size(), 17U);
  const std::string list = RunToEnd({"help"}).out;
  EXPECT_EQ(RunToEnd({"--help"}).out, list);
  const ProcessResult alone = Carole({});
  EXPECT_EQ(alone.exit_code, 64);
  EXPECT_EQ(alone.out, list);
  EXPECT_THAT(
      RunToEnd({"help", "dataset"}).out,
      AllOf(HasSubstr("dataset build"), HasSubstr("dataset show"), Not(HasSubstr("train"))));
  EXPECT_TRUE(FailsWith(Carole({"help", "trian"}), 64, {"trian", "did you mean train?"}));
}

TEST_F(HelpTest, OfACommandIsShortAndHasExamples) {
  for (const Words& command : commands_) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const Words lines = SplitLines(RunHelp(command, "--help"));
    EXPECT_LE(lines.size(), 60U);
    const auto examples = std::ranges::find(lines, "Examples:");
    ASSERT_NE(examples, lines.end());
    EXPECT_THAT(*(examples + 1), ::testing::ContainsRegex("^  (carole|mpirun) "));
    EXPECT_THAT(lines.back(), HasSubstr("--helpfull` lists all "));
  }
}

TEST_F(HelpTest, HelpCommandIsCommandHelp) {
  for (const Words& command : commands_) {
    Words words = command;
    words.insert(words.begin(), "help");
    EXPECT_EQ(RunToEnd(words).out, RunHelp(command, "--help"));
  }
}

TEST_F(HelpTest, NoLineIsWiderThan100Columns) {
  for (const Words& command : commands_) {
    for (const char* flag : {"--help", "--helpfull"}) {
      for (const std::string& line : SplitLines(RunHelp(command, flag)))
        EXPECT_LE(line.size(), 100U) << line;
    }
  }
}

TEST_F(HelpTest, EveryFlagHasATypeAndASentence) {
  for (const Words& command : commands_) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const std::string page = RunHelp(command, "--helpfull");
    const std::vector<FlagEntry> flags = ParseFlags(page);
    const auto is_flag = [](const std::string& line) { return line.starts_with("  --"); };
    EXPECT_EQ(std::ranges::count_if(SplitLines(page), is_flag),
              static_cast<std::ptrdiff_t>(flags.size()));
    for (const FlagEntry& flag : flags) {
      const bool is_bool = flag.names.starts_with("--[no]") || flag.names.starts_with("--help");
      EXPECT_EQ(flag.type.empty(), is_bool) << flag.names;
      if (!is_bool) {
        EXPECT_THAT(flag.type, ::testing::MatchesRegex("(INT|FLOAT|TEXT|PATH)"
                                                       "(>0|>=0|\\[[-0-9.]+\\.\\.[0-9.]+\\])?"
                                                       "(,\\.\\.\\.)?"));
      }
      EXPECT_THAT(flag.text, ::testing::MatchesRegex("(\\(required\\) )?[A-Z$].*"
                                                     "(\\.|\\. \\[default: .*\\])"))
          << flag.names;
    }
  }
}

TEST_F(HelpTest, BasicFlagsAreAPartOfAllFlags) {
  for (const Words& command : commands_) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const std::string full = RunHelp(command, "--helpfull");
    for (const FlagEntry& flag : ParseFlags(RunHelp(command, "--help"))) {
      EXPECT_EQ(FindFlag(full, flag.names.substr(0, flag.names.find(','))).text, flag.text)
          << flag.names;
    }
  }
}

TEST_F(HelpTest, ExamplesUseFlagsThatExist) {
  for (const Words& command : commands_) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const std::string full = RunHelp(command, "--helpfull");
    const std::string train = RunHelp({"train"}, "--helpfull");
    const std::string examples = full.substr(full.find("\nExamples:\n"));
    const std::regex flag("--[a-z][a-z_0-9]*");
    for (std::sregex_iterator at(examples.begin(), examples.end(), flag), end; at != end; ++at) {
      const std::string name = at->str();
      EXPECT_TRUE(name == "--hostfile" || !FindFlag(full, name).names.empty() ||
                  full.find("--[no]" + name.substr(2)) != std::string::npos ||
                  !FindFlag(train, name).names.empty())
          << name;
    }
  }
}

TEST_F(HelpTest, MarksRequiredFlags) {
  const auto text = [](const Words& command, const std::string& name) {
    return FindFlag(RunHelp(command, "--help"), name).text;
  };
  for (const char* command : {"train", "eval"})
    EXPECT_THAT(text({command}, "--dataset_dir"), ::testing::StartsWith("(required) "));
  EXPECT_THAT(text({"dataset", "build"}, "--dataset_dir"), ::testing::StartsWith("(required) "));
  EXPECT_THAT(text({"doctor"}, "--dataset_dir"), Not(HasSubstr("(required)")));
  EXPECT_THAT(RunHelp({"predict"}, "--help"),
              ::testing::ContainsRegex("Usage: carole predict \\[FLAGS\\] IMAGE\\.\\.\\.\n\n"
                                       "Arguments:\n  IMAGE\\.\\.\\. +\\(required\\) "));
}

TEST_F(HelpTest, ShowsTheDefaultsOfARecipe) {
  const std::string usual = RunHelp({"train"}, "--help");
  EXPECT_THAT(FindFlag(usual, "--optimizer").text, HasSubstr("[default: rmsprop]"));
  const std::string mnist = RunHelp({"train", "--recipe=mnist"}, "--help");
  EXPECT_THAT(FindFlag(mnist, "--optimizer").text, HasSubstr("[default: adam]"));
  EXPECT_THAT(FindFlag(mnist, "--dataset_dir").text,
              AllOf(HasSubstr("[default: /data/data]"), Not(HasSubstr("(required)"))));
}

TEST_F(HelpTest, ShowsTypesAllowedValuesAndGroups) {
  const std::string full = RunHelp({"train"}, "--helpfull");
  EXPECT_EQ(FindFlag(full, "--threads").type, "INT[0..4096]");
  EXPECT_EQ(FindFlag(full, "--batch_size").type, "INT>0");
  EXPECT_EQ(FindFlag(full, "--max_number_of_steps").type, "INT>=0");
  EXPECT_EQ(FindFlag(full, "--learning_rate_boundaries").type, "FLOAT,...");
  EXPECT_EQ(FindFlag(full, "--data_dir").type, "PATH");
  EXPECT_THAT(FindFlag(full, "--learning_rate_boundaries").text,
              HasSubstr("[default: 30,60,80,90]"));
  EXPECT_THAT(FindFlag(full, "--[no]report").text, HasSubstr("[default: true]"));
  EXPECT_THAT(FindFlag(full, "--dct_method").text,
              HasSubstr(" One of: INTEGER_FAST, INTEGER_ACCURATE. [default: "));
  EXPECT_THAT(FindFlag(full, "--optimizer").text, HasSubstr(" lars, momentum, "));
  EXPECT_THAT(FindFlag(full, "--all_reduce").text, HasSubstr("One of: auto, "));
  for (const char* group : {"Data", "Net", "Optimization", "Run and checkpoints", "Monitoring",
                            "Ranks and devices", "General", "Flags of other programs"})
    EXPECT_THAT(full, HasSubstr("\n" + std::string(group) + ":\n  --")) << group;
  const size_t others = full.find("\nFlags of other programs:\n");
  for (const char* flag : {"  --num_ps_tasks", "  --resnet_size", "  --[no]clone_on_cpu"})
    EXPECT_GT(full.find(flag), others) << flag;
  EXPECT_THAT(RunHelp({"train"}, "--help"), Not(HasSubstr("--num_ps_tasks")));
}

}  // namespace
}  // namespace carole::testing
