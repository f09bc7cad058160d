#include "src/core/files/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace carole {

std::optional<size_t> AllowOpenFiles(size_t more) {
  constexpr size_t kOthers = 256;  // libraries, checkpoints, sockets
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  const size_t wanted =
      static_cast<size_t>(std::distance(begin(open_files), end(open_files))) + more;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted + kOthers)
    return std::nullopt;
  if (limit.rlim_max <= wanted) return limit.rlim_max;
  limit.rlim_cur = std::min<rlim_t>(wanted + kOthers, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);  // when refused, opening says so
  return std::nullopt;
}

}  // namespace carole
