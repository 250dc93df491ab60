// SPDX-License-Identifier: Apache-2.0
//
// observe [NAME]: prints what is posted under a name, also when the service was restarted in between.

#include <iostream>

#include "center-proxy.h"  // written by sdbus-c++-xml2cpp

static const std::string service = "org.carillon.NotificationCenter1", path = "/org/carillon/NotificationCenter1";
static const std::string bus = "org.freedesktop.DBus", busPath = "/org/freedesktop/DBus";

using Dictionary = std::map<std::string, sdbus::Variant>;
using Numbers = std::vector<uint64_t>;
using Batch = std::vector<sdbus::Struct<std::string, std::string, Dictionary, Numbers, std::string, uint64_t, uint64_t,
                                        Dictionary>>;

template <typename... Types> static void printAnyOf(std::ostream &out, const sdbus::Variant &value)
{
    // The plus has a byte printed as a number.
    ((value.containsValueOfType<Types>() && out << +value.get<Types>()) || ...);
}

static std::ostream &operator<<(std::ostream &out, const sdbus::Variant &value)
{
    if (value.containsValueOfType<bool>()) return out << (value.get<bool>() ? "true" : "false");
    if (value.containsValueOfType<std::string>()) return out << value.get<std::string>();
    printAnyOf<uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, double>(out, value);
    return out;
}

class Center : public sdbus::ProxyInterfaces<org::carillon::NotificationCenter1_proxy> {
public:
    Center(sdbus::IConnection &connection, const std::string &name)
        : ProxyInterfaces(connection, service, path), name(name)
    {
        registerProxy();
    }

    ~Center() { unregisterProxy(); }

    // The service that the bus started again still knows our observers; without RemoveObservers we would have two.
    void observe(const std::string &newOwner)
    {
        owner = newOwner;
        RemoveObservers("", "");
        AddObserver(name, "", {{"retained", true}});
        std::cout << "observing " << name << std::endl;
    }

private:
    // Anybody may send us a signal. What counts is who sent it.
    bool isFromService() { return getProxy().getCurrentlyProcessedMessage()->getSender() == owner; }

    void onNotification(const std::string &name, const std::string &object, const Dictionary &userInfo,
                        const Numbers &, const std::string &, const uint64_t &, const uint64_t &) override
    {
        if (!isFromService()) return;
        std::cout << name << ' ' << object;
        for (const auto &[key, value] : userInfo) std::cout << ' ' << key << '=' << value;
        std::cout << std::endl;
    }

    void onDropped(const uint64_t &count, const Numbers &, const std::string &reason) override
    {
        if (isFromService()) std::cout << "lost " << count << " (" << reason << ")" << std::endl;
    }

    void onSuspensionChanged(const bool &, const std::string &) override {}
    // Only who calls SetClientOptions({{"batches", true}}) gets these, which are faster where much is posted.
    void onNotifications(const Batch &) override {}
    // Only who calls FollowInterest, which bridges do.
    void onInterestChanged() override {}
    void onValuesRemoved() override {}
    // Of posts that want no answer; this program posts none.
    void onPostsRefused(const uint32_t &, const std::string &, const std::string &) override {}

    const std::string name;
    std::string owner;
};

int main(int argc, char *argv[])
try {
    const auto connection = sdbus::createSessionBusConnection();
    const auto daemon = sdbus::createProxy(*connection, bus, busPath);
    const auto start = [&] { daemon->callMethod("StartServiceByName").onInterface(bus).withArguments(service, 0u); };
    start();  // Does nothing if it runs.

    Center center(*connection, argc > 1 ? argv[1] : "com.example.Saved");
    daemon->uponSignal("NameOwnerChanged").onInterface(bus).call(
        [&](const std::string &changed, const std::string &, const std::string &owner) {
            if (changed != service) return;
            owner.empty() ? start() : center.observe(owner);
        });
    daemon->finishRegistration();
    std::string owner;
    daemon->callMethod("GetNameOwner").onInterface(bus).withArguments(service).storeResultsTo(owner);
    center.observe(owner);
    connection->enterEventLoop();
} catch (const std::exception &error) {
    std::cerr << "observe: " << error.what() << std::endl;
    return 1;
}
