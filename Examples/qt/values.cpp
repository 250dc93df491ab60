// SPDX-License-Identifier: Apache-2.0
//
// Posts two values that stay, and reads them, with the class that Qt makes of the interface. With Qt 5 (qtbase5-dev):
//
//     qdbusxml2cpp -m -i carillon.h -p center org.carillon.NotificationCenter1.xml
//     moc center.h -o center.moc
//     c++ -fPIC -I. -o values values.cpp center.cpp $(pkg-config --cflags --libs Qt5DBus)
//     ./values com.example.Battery

#include <QCoreApplication>
#include <QTextStream>

#include "center.h"

int main(int argc, char *argv[])
{
    QCoreApplication application(argc, argv);
    QTextStream out(stdout);
    registerCarillonTypes();
    const QString name = application.arguments().value(1, "com.example.Battery");
    OrgCarillonNotificationCenter1Interface center(
        "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1", QDBusConnection::sessionBus());

    const QVariantMap retain{{"retain", true}};
    auto outcomes = center.PostMany({
        {name, "BAT0", {{"percent", 80}}, retain},
        {name, "BAT1", {{"percent", 5}}, retain},
    });
    outcomes.waitForFinished();
    auto values = center.Get(name, "");
    values.waitForFinished();
    if (outcomes.isError() || values.isError()) {
        out << outcomes.error().message() << values.error().message() << Qt::endl;
        return 1;
    }
    for (const CarillonOutcome &outcome : outcomes.value())
        out << "posted to " << outcome.receivers << " " << outcome.error << Qt::endl;
    for (const CarillonValue &value : values.value())
        out << value.object << " " << value.userInfo["percent"].toInt() << " posted by "
            << value.details["poster"].toString() << Qt::endl;
    out << center.statistics()["retained"] << " values are kept" << Qt::endl;
}
