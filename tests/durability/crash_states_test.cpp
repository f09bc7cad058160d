// Loses power at each moment of a save, a training, a build and a conversion. In each state that
// the disk may then have, the next program must find what was saved.
#include "tests/durability/crash_states.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/checkpoint_writer.h"
#include "io/weights/open_weights.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/text/parse_number.h"
#include "tests/cli/cli.h"
#include "tests/durability/example_checkpoint.h"
#include "tests/durability/settings.h"
#include "tests/durability/unfinished_files.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

// Files whose content no reader looks at: unfinished ones, the text of a lock, and the notes that
// the guardians of one run leave for each other.
bool IsIgnored(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.ends_with(".tmp") || name.ends_with(".part") || name == ".lock" ||
         path.find("/.survivors/") != std::string::npos;
}

// Event files are appended to, so they have more than one right content.
bool IsEventFile(const std::string& path) { return path.find("tfevents") != std::string::npos; }

// Returns what is wrong with the first file whose content was never complete; "" if there is none.
std::string FindIncomplete(const CrashState& state,
                           const std::map<std::string, std::set<size_t>>& versions) {
  for (const auto& [path, content] : state.files) {
    if (IsIgnored(path) || IsEventFile(path)) continue;
    const auto found = versions.find(path);
    if (found == versions.end()) return path + ": is not complete at any time";
    if (!found->second.contains(content->hash))
      return path + ": has a content that was never complete";
  }
  return "";
}

class CrashStatesTest : public ::testing::Test {
 protected:
  using Check = std::function<std::string(const CrashState&)>;
  using IsOpen = std::function<bool(const std::string& path, size_t cut)>;

  void Trace(const Words& words) {
    if (!recorder_) recorder_ = std::make_unique<Recorder>(root_);
    const TraceResult result = RunTraced(words, root_, *recorder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    ASSERT_THAT(recorder_->unsupported(), IsEmpty());
  }

  const std::vector<FileOp>& ops() const { return recorder_->ops(); }

  // Checks all states. `stage` is that of CrashOptions. `is_open` tells whether a program still
  // appends to a file at a cut; then any content is right.
  void CheckAll(
      const char* what, const std::function<int(size_t)>& stage, const Check& check,
      const IsOpen& is_open = [](const std::string&, size_t) { return false; },
      size_t block_bytes = 4096) {
    const auto versions = CompleteVersions(recorder_->before(), ops());
    int problems = 0;
    CrashOptions options{
        .is_ignored = [&](const std::string& path,
                          size_t cut) { return IsIgnored(path) || is_open(path, cut); },
        .stage = stage,
        .block_bytes = block_bytes};
    if (TestSettings().exhaustive) {
      options.random_subsets = 100;
      options.block_bytes /= 4;
    }
    const CrashCounts counts =
        ForEachCrashState(recorder_->before(), ops(), options, [&](const CrashState& state) {
          std::string problem = FindIncomplete(state, versions);
          if (problem.empty()) problem = check(state);
          if (problem.empty() || ++problems > 5) return;
          ADD_FAILURE() << state.Describe(ops()) << ": " << problem;
        });
    EXPECT_EQ(problems, 0) << "states with a problem; the first ones are shown above";
    std::printf("%s: %zu file operations, %zu crash states enumerated, %zu distinct\n", what,
                counts.operations, counts.candidates, counts.distinct);
  }

  // Writes the state into a new folder and calls `use` with it.
  template <typename Use>
  static std::string WithFiles(const CrashState& state, const Use& use) {
    const TemporaryFolder folder;
    state.Materialize(folder.path());
    try {
      return use(folder.path());
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  TemporaryFolder folder_;
  const std::string root_ =
      (fs::create_directory(folder_ / "root"), fs::canonical(folder_ / "root"));
  std::unique_ptr<Recorder> recorder_;
};

// Returns the newest step of the marks "WHAT-STEP" before each cut.
std::vector<int> NewestMarked(const std::vector<FileOp>& ops, const std::string& what) {
  std::vector<int> newest = {0};
  for (const FileOp& op : ops) {
    newest.push_back(newest.back());
    if (op.kind == OpKind::kMark && op.text.starts_with(what + "-"))
      newest.back() = std::stoi(op.text.substr(what.size() + 1));
  }
  return newest;
}

// Returns what is wrong with the newest example in a folder, "" if nothing is. It must be at least
// step `least`.
std::string CheckExamples(const std::string& folder, int least) {
  const auto latest = io::ReadLatest(folder);
  const int64_t step = latest ? latest->checkpoint.step : 0;
  if (step < least)
    return folder + ": got step " + std::to_string(step) + ", want " + std::to_string(least);
  io::Checkpoint want = ExampleCheckpoint(step);
  if (latest && latest->checkpoint.digest != io::ComputeDigest(want)) return folder + ": is wrong";
  return "";
}

// Removes unfinished files as the next run does. Returns the first one that is left; "" if none is.
std::string CleanUp(const std::string& run) {
  if (!fs::exists(run)) return "";
  RemoveTemporaryFiles(run, "evaluated");
  { const io::CheckpointWriter writer({.folder = run, .keep = 2, .keras = std::nullopt}); }
  if (fs::exists(run + "/best")) io::RemoveTemporaries(run + "/best");
  const auto left = UnfinishedFilesIn(run);
  return left.empty() ? "" : "left behind: " + left[0];
}

TEST_F(CrashStatesTest, OfSaves) {
  const int last = TestSettings().exhaustive ? 8 : 4;
  Trace({CAROLE_DURABILITY_WRITER, root_ + "/new/folder/run", "1", std::to_string(last)});
  const auto saved = NewestMarked(ops(), "saved"), best = NewestMarked(ops(), "best"),
             evaluated = NewestMarked(ops(), "evaluated");
  ASSERT_EQ(saved.back(), last);
  const auto stage = [&](size_t cut) {
    return saved[cut] + 100 * best[cut] + 10000 * evaluated[cut];
  };
  CheckAll("saves", stage, [&](const CrashState& state) {
    return WithFiles(state, [&](const std::string& folder) -> std::string {
      const std::string run = folder + "/new/folder/run";
      for (const std::string& problem :
           {CheckExamples(run, saved[state.cut]), CheckExamples(run + "/best", best[state.cut])}) {
        if (!problem.empty()) return problem;
      }
      int step = 0;
      std::istringstream(ReadText(run + "/evaluated")) >> step;
      if (step < evaluated[state.cut]) return "evaluated: got " + std::to_string(step);
      return CleanUp(run);
    });
  });
}

// A training that is resumed once, with evaluations, summaries and a report.
class TrainingCrashTest : public CrashStatesTest {
 protected:
  static constexpr int kSteps = 4;  // of each of the two runs

  void SetUp() override {
    WriteDigits(root_ + "/raw", 40, 20);
    RunToEnd({"dataset", "build", "--dataset_name=mnist", "--raw_dir", root_ + "/raw",
              "--dataset_dir", root_ + "/data"});
    fs::remove_all(root_ + "/raw");
  }

  static Words TrainWords(const std::string& root, int steps) {
    return {"train",
            "--dataset_name=mnist",
            "--dataset_dir=" + root + "/data",
            "--train_dir=" + root + "/new/run",
            "--model_name=lenet",
            "--train_image_size=4",
            "--batch_size=8",
            "--optimizer=momentum",
            "--learning_rate=0.01",
            "--max_number_of_steps=" + std::to_string(steps),
            "--save_interval_secs=1e-9",
            "--keep_checkpoints=2",
            "--eval_every=2",
            "--keep_best",
            "--save_summaries_steps=2",
            "--threads=1",
            "--num_preprocessing_threads=1"};
  }

  // Returns the newest step whose save had returned before each cut. The writer begins a file only
  // after the save before it has returned.
  std::vector<int> NewestSaved(size_t end_of_first_run) const {
    std::vector<int> newest = {0};
    int written = 0;
    std::string writing;
    for (size_t i = 0; i < ops().size(); ++i) {
      const FileOp& op = ops()[i];
      newest.push_back(newest.back());
      const bool begins = op.kind == OpKind::kCreate && op.name.starts_with("model.ckpt-") &&
                          op.text.find("/best/") == std::string::npos;
      if (begins) newest.back() = written;
      if (begins) written = std::stoi(op.name.substr(std::string("model.ckpt-").size()));
      if (i + 1 == end_of_first_run || i + 1 == ops().size()) newest.back() = written;
    }
    return newest;
  }

  // Returns the contents of the event files on the disk now.
  std::map<std::string, size_t> EventFiles() const {
    std::map<std::string, size_t> files;
    for (const auto& file : fs::recursive_directory_iterator(root_)) {
      const std::string path = file.path().string();
      if (file.is_regular_file() && IsEventFile(path))
        files[path.substr(root_.size() + 1)] = Content(ReadText(path)).hash;
    }
    return files;
  }

  // Returns the digest of the weights, slots and position of the newest checkpoint.
  static uint64_t StateDigest(const std::string& folder) {
    auto latest = io::ReadLatest(folder);
    if (!latest) return 0;
    latest->checkpoint.attributes.clear();  // they have the paths
    return io::ComputeDigest(latest->checkpoint);
  }

  // Resumes in some of the states, with the real program. They take the place of the recorded
  // folder, because the name of an index depends on the path of its data.
  void Resume(const std::vector<CrashState>& states, size_t count, uint64_t want,
              const std::vector<FileOp>& ops) const {
    count = std::min(count, states.size());
    for (size_t i = 0; i < count; ++i) {
      const CrashState& state = states[i * (states.size() - 1) / std::max<size_t>(1, count - 1)];
      const std::string recorded = root_ + ".recorded", run = root_ + "/new/run";
      fs::rename(root_, recorded);
      state.Materialize(root_);
      ForgetProcessesOfFilesIn(root_);
      const ProcessResult result = Carole(TrainWords(root_, 2 * kSteps));
      EXPECT_EQ(result.exit_code, 0) << state.Describe(ops) << "\n" << result.err;
      EXPECT_EQ(StateDigest(run), want) << state.Describe(ops);
      EXPECT_THAT(UnfinishedFilesIn(root_), IsEmpty()) << state.Describe(ops);
      EXPECT_EQ(ReadText(run + "/evaluated"), std::to_string(2 * kSteps) + "\n");
      fs::remove_all(root_);
      fs::rename(recorded, root_);
    }
    std::printf("training: %zu crash states resumed to the same weights\n", count);
  }
};

using CrashStatesOfTrainingTest = TrainingCrashTest;
using CrashStatesOfConversionTest = TrainingCrashTest;

TEST_F(CrashStatesOfTrainingTest, KeepCheckpointsAndReports) {
  Trace(CaroleWords(TrainWords(root_, kSteps)));
  const size_t end = ops().size();
  const auto events = EventFiles();
  ASSERT_GE(events.size(), 2u);
  Trace(CaroleWords(TrainWords(root_, 2 * kSteps)));
  const auto saved = NewestSaved(end);
  const auto is_open = [&](const std::string& path, size_t cut) {
    return IsEventFile(path) && (cut < end || !events.contains(path));
  };
  const auto stage = [&](size_t cut) { return saved[cut] + (cut >= end ? 100 : 0); };
  std::vector<CrashState> states;
  CheckAll(
      "training", stage,
      [&](const CrashState& state) -> std::string {
        states.push_back(state);
        if (state.cut >= end) {
          for (const auto& [path, hash] : events) {
            const auto found = state.files.find(path);
            if (found == state.files.end() || found->second->hash != hash)
              return path + ": the summaries of the first run are lost";
          }
          if (!state.files.contains("new/run/report.html")) return "report.html is lost";
        }
        return WithFiles(state, [&](const std::string& folder) -> std::string {
          const auto latest = io::ReadLatest(folder + "/new/run");
          const int64_t step = latest ? latest->checkpoint.step : 0;
          if (step < saved[state.cut]) {
            return "got step " + std::to_string(step) + ", want " +
                   std::to_string(saved[state.cut]);
          }
          io::ReadLatest(folder + "/new/run/best");
          return "";
        });
      },
      is_open, 64 << 10);
  Resume(states, TestSettings().exhaustive ? 60 : 8, StateDigest(root_ + "/new/run"), ops());
}

TEST_F(CrashStatesTest, OfADatasetBuild) {
  WriteDigits(root_ + "/raw", 40, 20);
  const auto words = [](const std::string& root) {
    return Words{"dataset",     "build",         "--dataset_name=mnist", "--raw_dir",
                 root + "/raw", "--dataset_dir", root + "/new/data"};
  };
  Trace(CaroleWords(words(root_)));
  std::vector<std::string> made;
  for (const auto& file : fs::directory_iterator(root_ + "/new/data"))
    made.push_back("new/data/" + file.path().filename().string());
  std::vector<CrashState> states;
  CheckAll(
      "dataset build", [&](size_t cut) { return cut == ops().size() ? 1 : 0; },
      [&](const CrashState& state) -> std::string {
        states.push_back(state);
        for (const std::string& path : made) {
          if (state.cut == ops().size() && !state.files.contains(path)) return path + ": is lost";
        }
        return "";
      });
  const size_t count = std::min<size_t>(states.size(), TestSettings().exhaustive ? 1000 : 6);
  for (size_t i = 0; i < count; ++i) {
    const CrashState& state = states[i * (states.size() - 1) / std::max<size_t>(1, count - 1)];
    const TemporaryFolder folder;
    state.Materialize(folder.path());
    ForgetProcessesOfFilesIn(folder.path());
    RunToEnd(words(folder.path()));
    for (const std::string& path : made) {
      if (path.ends_with(".lock")) continue;
      EXPECT_EQ(ReadText(folder / path), ReadText(root_ + "/" + path)) << state.Describe(ops());
    }
    EXPECT_THAT(UnfinishedFilesIn(folder.path()), IsEmpty()) << state.Describe(ops());
  }
  std::printf("dataset build: %zu crash states built again to the same shards\n", count);
}

// Returns a hash of all tensors.
size_t HashOfWeights(const std::string& path) {
  const auto weights = io::OpenWeights(path);
  std::string all;
  for (const std::string& name : weights->names()) {
    std::vector<float> values(static_cast<size_t>(weights->shape(name).size()));
    weights->Read(name, values);
    all.append(name).append(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
  }
  return std::hash<std::string>()(all);
}

// Two conversions with the same target. Data and index of TensorFlow's format are two files, which
// must never be paired old with new.
TEST_F(CrashStatesOfConversionTest, OldAndNewFilesAreNeverMixed) {
  RunToEnd(TrainWords(root_, 2));
  fs::create_directory(root_ + "/from");
  for (const int step : {1, 2})
    fs::rename(io::CheckpointPath(root_ + "/new/run", step),
               io::CheckpointPath(root_ + "/from", step));
  fs::remove_all(root_ + "/new");
  std::vector<size_t> ends = {0}, hashes;
  for (const int step : {1, 2}) {
    for (const char* target : {"/out/new/model.ckpt", "/out/new/model.h5"}) {
      Trace(CaroleWords(
          {"checkpoint", "convert", io::CheckpointPath(root_ + "/from", step), root_ + target}));
      ends.push_back(ops().size());
    }
    hashes.push_back(HashOfWeights(root_ + "/out/new/model.ckpt"));
  }
  ASSERT_NE(hashes[0], hashes[1]);
  const auto stage = [&](size_t cut) {
    return static_cast<int>(std::ranges::count_if(ends, [&](size_t end) { return end <= cut; })) -
           1;
  };
  CheckAll("convert", stage, [&](const CrashState& state) -> std::string {
    const int done = stage(state.cut);
    const std::string prefix = "out/new/model.ckpt";
    const bool has_index = state.files.contains(prefix + ".index");
    if (!has_index) return done == 0 || done == 2 ? "" : "the index is lost";
    return WithFiles(state, [&](const std::string& folder) -> std::string {
      const size_t hash = HashOfWeights(folder + "/" + prefix);
      const bool is_old = done <= 2 && hash == hashes[0], is_new = done >= 2 && hash == hashes[1];
      if (!is_old && !is_new) return "old and new files are mixed";
      if (done >= 2 && !state.files.contains("out/new/model.h5")) return "model.h5 is lost";
      return "";
    });
  });
}

}  // namespace
}  // namespace carole::testing
