extern "C" int FortyTwo() { return 42; }
