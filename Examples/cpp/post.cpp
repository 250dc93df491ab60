// SPDX-License-Identifier: Apache-2.0
//
// post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.

#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include <sdbus-c++/sdbus-c++.h>

int main(int argc, char *argv[])
try {
    const std::string service = "org.carillon.NotificationCenter1", object = argc > 1 ? argv[1] : "report.txt";
    char *end = nullptr;
    const int64_t bytes = argc > 2 ? std::strtoll(argv[2], &end, 10) : 4711;
    if (end && *end) throw std::invalid_argument(std::string("not a number of bytes: ") + argv[2]);
    // The type of each value is that of the expression: int64_t is x, std::string is s.
    const std::map<std::string, sdbus::Variant> userInfo{
        {"bytes", bytes},
        {"clean", true},
        {"title", std::string("Annual report — 2026")},
    };
    const std::map<std::string, sdbus::Variant> options{{"retain", true}};

    // Without a connection of its own a proxy would be on the system's bus.
    const auto session = sdbus::createSessionBusConnection();
    const auto center = sdbus::createProxy(*session, service, "/org/carillon/NotificationCenter1");
    uint32_t receivers = 0;
    center->callMethod("Post").onInterface(service)
        .withArguments(std::string("com.example.Saved"), object, userInfo, options).storeResultsTo(receivers);
    std::cout << "reached " << receivers << std::endl;
} catch (const std::exception &error) {  // Of an sdbus::Error, what() is the name and the message.
    std::cerr << "post: " << error.what() << std::endl;
    return 1;
}
