// Finds images in class folders: the raw form of flowers, of the user's own photos, and of ImageNet
// after its archives were extracted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace carole::io {

struct ClassImage {
  std::filesystem::path path;
  std::string name;  // path below the class folder: "a.jpg" or "images/a.jpg"
  int label = 0;     // index of the class
};

struct ClassFolders {
  std::vector<std::string> classes;  // the folders' names, sorted
  std::vector<ClassImage> images;    // sorted by label, then name
};

struct SplitFolders {
  ClassFolders train;
  std::optional<ClassFolders> validation;  // has the classes of `train`; may lack images of some
};

// Returns the images of root/CLASS, also those in folders below it. Logs which files and folders
// are left out. Throws DataError if `root` is missing or holds no class folders, if a class would
// be lost because its images have another format, and for links that lead nowhere; throws
// DiskError.
ClassFolders ListClassFolders(const std::filesystem::path& root);

// The same for a folder of two splits: root/train/CLASS and root/val/CLASS (or valid, validation,
// test). If there are no such folders, root/CLASS is `train`. A folder around all of them, as
// archives have it, is skipped. Throws DataError also if `validation` has another class.
SplitFolders ListSplitFolders(const std::filesystem::path& root);

// Returns the images directly in a folder, sorted by name. Throws as ListClassFolders().
std::vector<std::filesystem::path> ListImageFiles(const std::filesystem::path& folder);

}  // namespace carole::io
