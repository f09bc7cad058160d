# Makes ${CMAKE_CURRENT_BINARY_DIR}/imagenet_lists_text.cpp, which compiles ImageNet's lists into the program.
foreach(list synsets validation_labels)
  set(file ${CMAKE_CURRENT_LIST_DIR}/${list}.txt)
  file(READ ${file} imagenet_${list})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lists.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/imagenet_lists_text.cpp @ONLY)
