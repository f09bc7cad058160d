#include "src/core/files/best_effort_file.h"

#include <cerrno>
#include <fstream>
#include <sstream>

namespace carole {

std::string ReadFileOrEmpty(const std::filesystem::path& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::error_code ReplaceFile(const std::filesystem::path& path, std::string_view bytes,
                            std::string_view suffix) {
  const std::string part = path.string() + std::string(suffix);
  errno = 0;
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  std::error_code error;
  if (file) {
    std::filesystem::rename(part, path, error);
  } else {  // streams do not keep the reason, but errno usually has it
    error = {errno != 0 ? errno : EIO, std::generic_category()};
  }
  std::error_code ignored;
  if (error) std::filesystem::remove(part, ignored);
  return error;
}

}  // namespace carole
