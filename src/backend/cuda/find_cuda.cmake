# Sets CAROLE_HAS_CUDA where the CUDA compiler, cuDNN 9 and cudnn-frontend's headers (`./run` fetches them) are found,
# and CAROLE_HAS_NCCL where NCCL is too.
set(CAROLE_HAS_CUDA OFF)
set(CAROLE_HAS_NCCL OFF)
if(NOT CAROLE_WITH_CUDA)
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
find_package(CUDAToolkit 12 QUIET)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CMAKE_BINARY_DIR}/deps/cudnn-frontend/include)
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
  # Runs on every GPU since Turing; others of a generation run its first one's code, later ones compile the PTX.
  # CUDAARCHS in the environment, for instance 90, makes development faster.
  if(NOT CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90 120)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CAROLE_HAS_CUDA ON)
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(CAROLE_HAS_NCCL ON)
  else()
    message(STATUS "one GPU only: NCCL's header ${NCCL_INCLUDE_DIR}, library ${NCCL_LIBRARY}")
  endif()
else()
  message(STATUS "no GPU kernels: CUDA compiler ${CMAKE_CUDA_COMPILER}, cuDNN ${CUDNN_LIBRARY}, "
    "cudnn-frontend ${CUDNN_FRONTEND_INCLUDE_DIR}")
endif()
