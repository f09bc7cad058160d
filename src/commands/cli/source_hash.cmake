# Writes OUT: a header with a hash of the files that SOURCES lists, line by line, which tells builds of one version apart.
file(STRINGS ${SOURCES} sources)
foreach(source IN LISTS sources)
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUT} "#define CAROLE_SOURCE_HASH \"${hash}\"\n")
