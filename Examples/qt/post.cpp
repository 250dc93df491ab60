// SPDX-License-Identifier: Apache-2.0
//
// post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.

#include <QCoreApplication>
#include <QTextStream>

#include "center.h"  // written by qdbusxml2cpp

int main(int argc, char *argv[])
{
    QCoreApplication application(argc, argv);
    const QStringList arguments = application.arguments();
    registerCarillonTypes();
    OrgCarillonNotificationCenter1Interface center(
        "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1", QDBusConnection::sessionBus());

    bool isNumber = false;
    const qlonglong bytes = arguments.value(2, "4711").toLongLong(&isNumber);
    if (!isNumber) {
        QTextStream(stderr) << "post: not a number of bytes: " << arguments.value(2) << Qt::endl;
        return 1;
    }
    // What the QVariant holds is the type on the bus: qlonglong is x, int would be i.
    const QVariantMap userInfo{
        {"bytes", bytes},
        {"clean", true},
        {"title", QStringLiteral("Annual report — 2026")},
    };
    QDBusPendingReply<uint> receivers =
        center.Post("com.example.Saved", arguments.value(1, "report.txt"), userInfo, {{"retain", true}});
    receivers.waitForFinished();
    if (receivers.isError()) {
        QTextStream(stderr) << "post: " << receivers.error().name() << ": " << receivers.error().message() << Qt::endl;
        return 1;
    }
    QTextStream(stdout) << "reached " << receivers.value() << Qt::endl;
    return 0;
}
