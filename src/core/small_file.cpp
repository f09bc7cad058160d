#include "src/core/small_file.h"

#include <fstream>
#include <sstream>
#include <system_error>

namespace carole {

std::string ReadSmallFile(const std::filesystem::path& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool ReplaceSmallFile(const std::filesystem::path& path, std::string_view bytes,
                      std::string_view suffix) {
  const std::string part = path.string() + std::string(suffix);
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  const bool written = file && !error;
  if (!written) std::filesystem::remove(part, error);
  return written;
}

}  // namespace carole
