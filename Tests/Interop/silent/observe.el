;; SPDX-FileCopyrightText: The Carillon authors
;; SPDX-License-Identifier: Apache-2.0
;; An observer with Emacs: `emacs --batch --quick --load observe.el NAME`. See test_silent_libraries.py.
(require 'dbus)

(defconst path "/org/carillon/NotificationCenter1")
(defconst interface "org.carillon.NotificationCenter1")
(defvar received 0)
(defvar dropped 0)
(defvar faults 0)
(defvar expected 0)

;; What `princ` prints would stay in a buffer.
(defun say (&rest arguments)
  (send-string-to-terminal (concat (apply #'format arguments) "\n")))

(defun notification (_name object _user-info _observers _poster _serial sequence)
  (setq expected (1+ expected))
  (unless (= sequence expected) (setq faults (1+ faults)))
  (setq expected sequence)
  (if (string= object "end")
      (say "received=%d dropped=%d faults=%d" received dropped faults)
    (unless (= (string-to-number object) (+ received dropped)) (setq faults (1+ faults)))
    (setq received (1+ received))))

(defun dropped (count _observers _reason)
  (setq dropped (+ dropped count))
  (setq expected (+ expected count)))

(dbus-register-signal :session nil path interface "Notification" #'notification)
(dbus-register-signal :session nil path interface "Dropped" #'dropped)
(dbus-call-method :session interface path interface "AddObserver" (car command-line-args-left) "" '(:array :signature "{sv}"))
(say "ready %s" (dbus-get-unique-name :session))
(while t (read-event nil nil 1))
