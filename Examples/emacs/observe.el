;;; observe.el --- Prints notifications: observe.el [NAME]  -*- lexical-binding: t -*-
;; SPDX-License-Identifier: Apache-2.0
(require 'dbus)

(defconst center "org.carillon.NotificationCenter1")
(defconst path "/org/carillon/NotificationCenter1")
(defvar name (or (pop command-line-args-left) "com.example.Saved"))
(defvar owner nil "The unique name of the service.")

;; What `princ' prints would stay in a buffer.
(defun say (&rest arguments)
  (send-string-to-terminal (concat (apply #'format arguments) "\n")))

(defun observe ()
  (setq owner (dbus-get-name-owner :session center))
  ;; A service that was started anew remembers us. Begin from nothing, or registrations would add up.
  (dbus-call-method :session center path center "RemoveObservers" "" "")
  (dbus-call-method :session center path center "AddObserver" name ""
                    '(:array (:dict-entry "retained" (:variant :boolean t))))
  (say "observing %s" name))

(defun text (value)
  (pcase value ('t "true") ('nil "false") (_ (format "%s" value))))

;; Handlers see who sent the signal. As it is addressed to us, the bus needs no match rule for its sender.
(defun notification (of object user-info &rest _)
  (when (equal (dbus-event-service-name last-input-event) owner)
    (say "%s %s%s" of object
         (mapconcat (lambda (entry) (format " %s=%s" (car entry) (text (caadr entry))))
                    (sort (copy-sequence user-info) (lambda (one other) (string< (car one) (car other))))
                    ""))))

(defun dropped (count _observers reason)
  (when (equal (dbus-event-service-name last-input-event) owner)
    (say "lost %d (%s)" count reason)))

(defun owner-changed (changed _old new)
  (cond ((not (equal changed center)))
        ((string-empty-p new)
         (dbus-call-method-asynchronously :session dbus-service-dbus dbus-path-dbus dbus-interface-dbus
                                          "StartServiceByName" nil center :uint32 0))
        ;; The one that we have started is known already.
        ((not (equal new owner)) (observe))))

(condition-case problem
    (progn
      (dbus-register-signal :session nil path center "Notification" #'notification)
      (dbus-register-signal :session nil path center "Dropped" #'dropped)
      (dbus-call-method :session dbus-service-dbus dbus-path-dbus dbus-interface-dbus
                        "StartServiceByName" center :uint32 0)
      ;; Not before, as signals are handled while a call waits.
      (dbus-register-signal :session dbus-service-dbus dbus-path-dbus dbus-interface-dbus
                            "NameOwnerChanged" #'owner-changed)
      (observe))
  (dbus-error (message "%s" (mapconcat (lambda (part) (format "%s" part)) (cdr problem) ": "))
              (kill-emacs 1)))
(while t (read-event nil nil 1))
