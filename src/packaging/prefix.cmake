# CPack reads this file once for each kind of package. A .deb installs into /usr; a .tar.gz has one folder at the top.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
