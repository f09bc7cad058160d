#include "io/datasets/class_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "io/image/image.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/lower_case.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr char kTag[] = "io.build";

// A folder with everything below it that is not hidden. All lists are sorted by name.
struct Folder {
  fs::path path;
  std::vector<fs::path> images;  // directly in it
  std::vector<fs::path> others;  // other files directly in it
  std::vector<Folder> folders;
  int64_t num_images = 0;  // also of the folders below it

  std::string name() const { return path.filename().string(); }
};

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

[[noreturn]] void Fail(const fs::path& path, std::string_view problem) {
  throw DataError(fmt::format("[{}] {} {}: {}", kTag, Option("raw_dir"), path.string(), problem));
}

// True for the folders of previews and attributes that macOS and Synology add, too.
bool IsHidden(const std::string& name) {
  return name.starts_with('.') || IsOneOf(name, {"__MACOSX", "@eaDir"});
}

// Returns the entries of a folder that are not hidden, sorted by name.
std::vector<fs::path> ListVisible(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!IsHidden(entry.path().filename().string())) entries.push_back(entry.path());
  }
  if (error == std::errc::no_such_file_or_directory)
    Fail(folder, "no such folder; correct the path");
  if (error) {
    ThrowDiskError(kTag, Option("raw_dir") + " " + folder.string(), "list", error.value());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Throws DataError if a file with the name of an image is not a regular file, such as a broken
// link.
void CheckIsFile(const fs::path& image) {
  std::error_code error;
  if (fs::is_regular_file(image, error)) return;
  Fail(image, fmt::format("not an image file: got {}; remove it",
                          fs::exists(image, error) ? "a device" : "a broken link"));
}

Folder Scan(const fs::path& path, int depth = 0) {
  constexpr int kMaxDepth = 16;
  if (depth > kMaxDepth)
    Fail(path, fmt::format("too deep: got more than {} folders within each other; remove links to "
                           "folders above",
                           kMaxDepth));
  Folder folder{.path = path};
  for (const fs::path& entry : ListVisible(path)) {
    std::error_code error;
    if (fs::is_directory(entry, error)) {
      folder.folders.push_back(Scan(entry, depth + 1));
      folder.num_images += folder.folders.back().num_images;
    } else if (HasImageName(entry)) {
      CheckIsFile(entry);
      folder.images.push_back(entry);
    } else {
      folder.others.push_back(entry);
    }
  }
  folder.num_images += static_cast<int64_t>(folder.images.size());
  return folder;
}

int64_t NumFoldersWithImages(const Folder& folder) {
  return std::ranges::count_if(folder.folders, [](const Folder& f) { return f.num_images > 0; });
}

bool HoldsClasses(const Folder& folder) {
  return folder.images.empty() && NumFoldersWithImages(folder) > 0;
}

// Adds the images of a class, and the other files below its folder to `others`.
void AddImages(const Folder& folder, const fs::path& class_path, int label,
               std::vector<ClassImage>& images, std::vector<fs::path>& others) {
  for (const fs::path& image : folder.images)
    images.push_back({image, image.lexically_relative(class_path).string(), label});
  others.insert(others.end(), folder.others.begin(), folder.others.end());
  for (const Folder& inner : folder.folders) AddImages(inner, class_path, label, images, others);
}

// Returns "4 .webp, 1 .txt".
std::string CountExtensions(const std::vector<fs::path>& files) {
  std::map<std::string, int64_t> counts;
  for (const fs::path& file : files) ++counts[LowerCase(file.extension().string())];
  std::vector<std::string> texts;
  for (const auto& [extension, count] : counts)
    texts.push_back(
        fmt::format("{} {}", count, extension.empty() ? "without extension" : extension));
  constexpr size_t kMaxNamed = 5;
  return JoinFirst(texts, kMaxNamed);
}

bool HasOtherImageName(const fs::path& file) {
  return IsOneOf(LowerCase(file.extension().string()),
                 {".heic", ".heif", ".avif", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jp2",
                  ".jxl", ".dng", ".raw"});
}

// Handles a folder without JPEGs and PNGs. Throws DataError if it looks like a class.
void LeaveOut(const Folder& folder, const std::vector<fs::path>& files) {
  if (const auto lost = std::ranges::find_if(files, HasOtherImageName); lost != files.end())
    Fail(folder.path, fmt::format("no JPEG or PNG in this folder: got {}, such as {}, want {}; "
                                  "convert the images, or remove the folder",
                                  CountExtensions(files), lost->filename().string(),
                                  JoinTexts(kImageExtensions)));
  LogWarning(kTag, "{}: no images in this folder, so it is not a class", folder.path.string());
}

// Nothing is left out silently.
void WarnAboutLeftOut(const Folder& root, const ClassFolders& found,
                      const std::vector<fs::path>& others) {
  if (!root.images.empty())
    LogWarning(kTag, "{}: {} images are left out, such as {}: they are in no class folder",
               root.path.string(), root.images.size(), root.images[0].filename().string());
  if (!others.empty())
    LogWarning(kTag, "{}: {} files are left out ({}), such as {}: want {}", root.path.string(),
               others.size(), CountExtensions(others),
               others[0].lexically_relative(root.path).string(), JoinTexts(kImageExtensions));
  const auto is_nested = [](const ClassImage& image) {
    return image.name.find(fs::path::preferred_separator) != std::string::npos;
  };
  const auto nested = std::ranges::find_if(found.images, is_nested);
  if (nested == found.images.end()) return;
  LogInfo(kTag, "{}: {} images in deeper folders belong to the class above, such as {} to {}",
          root.path.string(), std::ranges::count_if(found.images, is_nested),
          nested->path.lexically_relative(root.path).string(),
          found.classes[static_cast<size_t>(nested->label)]);
}

// Throws DataError if a class name has a line break, because labels.txt has one line per class.
void CheckNames(const Folder& root) {
  for (const Folder& folder : root.folders) {
    if (folder.name().find_first_of("\n\r") != std::string::npos)
      Fail(root.path, "line break in the name of a class folder; rename the folder");
  }
}

ClassFolders ToClasses(const Folder& root) {
  CheckNames(root);
  ClassFolders found;
  std::vector<fs::path> others;
  for (const Folder& folder : root.folders) {
    std::vector<fs::path> files;
    AddImages(folder, folder.path, static_cast<int>(found.classes.size()), found.images, files);
    if (folder.num_images == 0) {
      LeaveOut(folder, files);
    } else {
      found.classes.push_back(folder.name());
      others.insert(others.end(), files.begin(), files.end());
    }
  }
  if (found.images.empty() && !root.images.empty())
    Fail(root.path, fmt::format("no class folders: got {} images directly in it, want one folder "
                                "of images per class, such as {}; move the images into such "
                                "folders",
                                root.images.size(),
                                (root.path / "cats" / root.images[0].filename()).string()));
  if (found.images.empty())
    Fail(root.path, "no images: want one folder of .jpg or .png files per class");
  WarnAboutLeftOut(root, found, others);
  return found;
}

bool IsTrainName(const std::string& name) {
  return IsOneOf(LowerCase(name), {"train", "training", "train_set", "training_set"});
}

// Skips folders that only hold another folder of classes or splits.
const Folder& SkipOuterFolders(const Folder& root) {
  if (!HoldsClasses(root) || NumFoldersWithImages(root) > 1) return root;
  const auto inner =
      std::ranges::find_if(root.folders, [](const Folder& f) { return f.num_images > 0; });
  const bool has_classes = NumFoldersWithImages(*inner) > 1 || IsTrainName(inner->name());
  if (!HoldsClasses(*inner) || !has_classes) return root;
  LogInfo(kTag, "{}: the classes are in {}", root.path.string(), inner->path.string());
  return SkipOuterFolders(*inner);
}

// The folders of the splits in a folder; null if there is none.
struct SplitPointers {
  const Folder* train = nullptr;
  const Folder* validation = nullptr;
  std::vector<const Folder*> unused;  // other splits
  std::vector<const Folder*> others;  // folders with images that are no split
};

SplitPointers FindSplits(const Folder& root) {
  SplitPointers found;
  const Folder* test = nullptr;
  for (const Folder& folder : root.folders) {
    if (folder.num_images == 0) continue;
    const std::string name = LowerCase(folder.name());
    const auto put = [&](const Folder*& place) {
      if (HoldsClasses(folder) && place == nullptr) {
        place = &folder;
      } else {
        found.unused.push_back(&folder);
      }
    };
    if (IsTrainName(name) && HoldsClasses(folder)) {
      put(found.train);
    } else if (IsOneOf(name, {"val", "valid", "validation", "val_set", "validation_set", "dev"})) {
      put(found.validation);
    } else if (IsOneOf(name, {"test", "testing", "test_set", "testing_set"})) {
      put(test);
    } else {
      found.others.push_back(&folder);
    }
  }
  if (found.validation == nullptr) {
    found.validation = test;
  } else if (test != nullptr) {
    found.unused.push_back(test);
  }
  return found;
}

// Throws DataError if the folder of the training split has no class folders: it is no class.
void CheckAreClasses(const SplitPointers& found) {
  const auto is_train = [](const Folder* folder) { return IsTrainName(folder->name()); };
  if (found.others.empty() || !std::ranges::all_of(found.others, is_train)) return;
  const Folder& train = *found.others[0];
  Fail(train.path,
       fmt::format("no class folders: got {} images in the folder of a split, want one folder of "
                   "images per class, such as {}; sort the images",
                   train.num_images, (train.path / "cats" / "0.jpg").string()));
}

// Gives images of the validation split the labels of the training split.
void UseClassesOf(const ClassFolders& train, const Folder& train_folder, const Folder& folder,
                  ClassFolders& validation) {
  constexpr size_t kMaxNamed = 5;
  std::vector<int> labels;
  for (const std::string& name : validation.classes) {
    const auto found = std::ranges::lower_bound(train.classes, name);
    if (found == train.classes.end() || *found != name)
      Fail(folder.path, fmt::format("class without training images: got folder {}, want {}; sort "
                                    "its images into folders of these names, or build {}, which "
                                    "uses a share of the training images for validation",
                                    name, JoinFirst(train.classes, kMaxNamed),
                                    Option("raw_dir", train_folder.path.string())));
    labels.push_back(static_cast<int>(found - train.classes.begin()));
  }
  for (ClassImage& image : validation.images)
    image.label = labels[static_cast<size_t>(image.label)];
  if (labels.size() < train.classes.size())
    LogWarning(kTag, "{}: images of {} classes, the training split has {}", folder.path.string(),
               labels.size(), train.classes.size());
  validation.classes = train.classes;
}

}  // namespace

ClassFolders ListClassFolders(const fs::path& root) { return ToClasses(Scan(root)); }

SplitFolders ListSplitFolders(const fs::path& root) {
  const Folder all = Scan(root);
  const Folder& outer = SkipOuterFolders(all);
  const SplitPointers found = FindSplits(outer);
  const bool has_splits =
      found.train != nullptr && (found.validation != nullptr || !found.unused.empty());
  if (!has_splits) {
    CheckAreClasses(found);
    return {.train = ToClasses(outer)};
  }
  if (!found.others.empty())
    Fail(found.others[0]->path,
         fmt::format("{} images next to the splits {} and {}: want splits only; move the folder "
                     "away",
                     found.others[0]->num_images, found.train->name(),
                     (found.validation != nullptr ? found.validation : found.unused[0])->name()));
  for (const Folder* unused : found.unused)
    LogWarning(kTag, "{}: {} images are left out: {}", unused->path.string(), unused->num_images,
               HoldsClasses(*unused) ? "there are two splits, for training and validation"
                                     : "they are in no class folder");
  SplitFolders splits{.train = ToClasses(SkipOuterFolders(*found.train))};
  if (found.validation == nullptr) return splits;
  splits.validation = ToClasses(SkipOuterFolders(*found.validation));
  UseClassesOf(splits.train, *found.train, *found.validation, *splits.validation);
  return splits;
}

std::vector<fs::path> ListImageFiles(const fs::path& folder) {
  std::vector<fs::path> images;
  std::ranges::copy_if(ListVisible(folder), std::back_inserter(images),
                       [](const fs::path& path) { return HasImageName(path); });
  for (const fs::path& image : images) CheckIsFile(image);
  return images;
}

}  // namespace carole::io
