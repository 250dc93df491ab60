// SPDX-License-Identifier: Apache-2.0
//
// observe [NAME]: prints what is posted under a name, also when the service was restarted in between.

#include <QCoreApplication>
#include <QDBusConnectionInterface>
#include <QDBusServiceWatcher>
#include <QTextStream>
#include <QTimer>

#include "center.h"  // written by qdbusxml2cpp

static QString text(const QVariant &value)
{
    // A byte would be a character.
    return value.userType() == QMetaType::UChar ? QString::number(value.toUInt()) : value.toString();
}

int main(int argc, char *argv[])
{
    QCoreApplication application(argc, argv);
    QTextStream out(stdout), err(stderr);
    registerCarillonTypes();
    const QString service = "org.carillon.NotificationCenter1";
    const QString name = application.arguments().value(1, "com.example.Saved");
    QDBusConnection bus = QDBusConnection::sessionBus();
    if (!bus.isConnected()) {
        err << "observe: there is no session bus: " << bus.lastError().message() << Qt::endl;
        return 1;
    }
    const QDBusReply<void> started = bus.interface()->startService(service);  // Does nothing if it runs.
    if (!started.isValid()) {
        err << "observe: there is no notification center: " << started.error().message() << Qt::endl;
        return 1;
    }

    // Qt hands these over only if they come from the owner of the name.
    using Center = OrgCarillonNotificationCenter1Interface;
    Center center(service, "/org/carillon/NotificationCenter1", bus);
    QObject::connect(&center, &Center::Notification,
                     [&](const QString &name, const QString &object, const QVariantMap &userInfo) {
                         out << name << ' ' << object;
                         for (auto entry = userInfo.begin(); entry != userInfo.end(); ++entry)
                             out << ' ' << entry.key() << '=' << text(entry.value());
                         out << Qt::endl;
                     });
    QObject::connect(&center, &Center::Dropped,
                     [&](qulonglong count, const QList<qulonglong> &, const QString &reason) {
                         out << "lost " << count << " (" << reason << ")" << Qt::endl;
                     });

    // The service that the bus started again still knows our observers; without RemoveObservers we would have two.
    const auto observe = [&] {
        center.RemoveObservers("", "");
        auto added = center.AddObserver(name, "", {{"retained", true}});
        added.waitForFinished();
        if (added.isError())
            err << "observe: " << added.error().name() << ": " << added.error().message() << Qt::endl;
        else
            out << "observing " << name << Qt::endl;
    };
    QDBusServiceWatcher watcher(service, bus, QDBusServiceWatcher::WatchForOwnerChange);
    QObject::connect(&watcher, &QDBusServiceWatcher::serviceOwnerChanged,
                     [&](const QString &, const QString &, const QString &owner) {
                         owner.isEmpty() ? void(bus.interface()->startService(service)) : observe();
                     });
    // In the event loop: Qt keeps back what arrives before that runs, and newer signals may then come first.
    QTimer::singleShot(0, &center, observe);
    return application.exec();
}
